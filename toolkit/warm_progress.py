"""How far a warm-up is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from verl_doctor.toolkit.progress import announce
from verl_doctor.toolkit.text import counted, in_bytes, in_time
from verl_doctor.toolkit.warm import Moment, Plan

_FIRST_PIECES = 0.5  # seconds after which the speed says something
_OFTEN = 5.0  # seconds between two lines


@contextlib.contextmanager
def shown(plan: Plan) -> Iterator[Callable[[Moment], None]]:
    """Say how far it is until it is over."""
    with WarmProgress(plan) as progress:
        yield progress.told


class WarmProgress:
    """Says what is to be read, then how long that will take, then how far it is."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._bar: tuple[object, object] | None = None
        self._next_line = 0.0
        self._estimated = False

    def __enter__(self) -> WarmProgress:  # noqa: PYI034 - Self is newer than Python 3.10
        if self._plan.missing:
            files = counted(len(self._plan.rows), "file")
            announce(f"reads {in_bytes(self._plan.missing)} of {in_bytes(self._plan.size)} in {files}")
            if sys.stderr.isatty():
                self._show_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()  # type: ignore[attr-defined]

    def told(self, moment: Moment) -> None:
        """Show this moment."""
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=moment.brought, total=moment.missing)  # type: ignore[attr-defined]
        if moment.left is None or moment.seconds < _FIRST_PIECES:
            return
        if not self._estimated:
            self._estimated = True
            self._next_line = time.monotonic() + _OFTEN
            announce(f"has {in_bytes(moment.speed)}/s: about {in_time(moment.left)} to go")
        elif self._bar is None and time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + _OFTEN
            announce(
                f"has read {in_bytes(moment.brought)} of {in_bytes(moment.missing)}, {in_bytes(moment.speed)}/s: "
                f"about {in_time(moment.left)} to go"
            )

    def _show_bar(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        bar = Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        self._bar = bar, bar.add_task("", total=self._plan.missing)
