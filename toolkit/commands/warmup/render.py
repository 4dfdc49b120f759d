"""What is warm now, for a terminal and as Markdown: nodes with the same result share a line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from rich.text import Text

from verl_doctor.toolkit.commands.warmup.warmup import HERE, NAME_ONE, EngineCaches, Growth, Node, Warmup
from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.console.progress import announce
from verl_doctor.toolkit.system.node_names import fold
from verl_doctor.toolkit.text import counted, harmless, in_bytes, in_time, wrapped
from verl_doctor.toolkit.warm.summary import headline, remarks
from verl_doctor.toolkit.warm.warm import Moment, Plan

_STYLES = {
    "WARM": "bold green",
    "NOTHING": "bold green",
    "COLD": "bold yellow",
    "PART": "bold red",
    "UNKNOWN": "bold magenta",
    "NO ANSWER": "bold red",
}


def text_lines(done: Warmup, width: int | None) -> Iterator[Text]:
    """Yield the lines of the result. `width` is the terminal's, or None for a pipe."""
    for word, sentence, others in _paragraphs(done):
        first, *rest = wrapped(harmless(f"{word}  {sentence}"), width, hanging="  ")
        yield Text.assemble((word, _STYLES.get(word, "bold")), first.removeprefix(word))
        yield from map(Text, rest)
        for other in others:
            yield from map(Text, wrapped(harmless(other), width, indent="  ", hanging="    "))
    if done.dry_run:
        yield Text("")
        yield Text("To do it, run the same command without --dry-run.")


def markdown_lines(done: Warmup) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    yield f"## verl-doctor warmup: {done.verdict.replace('_', ' ')}"
    for word, sentence, others in _paragraphs(done):
        yield ""
        yield f"**{word}** {escaped(harmless(sentence))}"
        if others:
            yield ""
        for other in others:
            yield f"- {escaped(harmless(other))}"


def _paragraphs(done: Warmup) -> Iterator[tuple[str, str, list[str]]]:
    """Yield a word, its explanation, and further remarks."""
    same: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for node in done.nodes:
        same.setdefault(_state(node), []).append(node.name)
    for (word, sentence, others), names in same.items():
        where = "" if names == [HERE] else f"{fold(names)}: "
        yield word, where + sentence, list(others)
    for repair in done.bytecode:
        reason = f": {repair.reason}" if repair.reason else ""
        undo = [f"verl-doctor undo {repair.transaction} reverts it"] if repair.transaction else []
        yield "BYTECODE", f"{_OUTCOMES.get(repair.outcome, repair.outcome)}{reason}", undo
    if done.engine is not None:
        yield "ENGINE", _of_engine(done.engine), [_growth(growth) for growth in done.engine.grown]
    if not (done.nodes or done.bytecode or done.engine):
        yield "NOTHING", f"nothing to compile or read: {NAME_ONE}", []


_OUTCOMES = {
    "planned": "the missing caches of the installed packages would be written",
    "repaired": "the missing caches of the installed packages were written",
}


def _of_engine(engine: EngineCaches) -> str:
    if engine.outcome in ("not applicable", "planned", "failed"):
        return f"{engine.outcome}: {engine.reason}"
    took = f"vLLM was started once in {in_time(engine.seconds)}"
    return took if engine.grown else f"{took}, and compiled nothing new"


def _growth(growth: Growth) -> str:
    return f"{growth.holds}: {counted(growth.files, 'new file')}, {in_bytes(growth.size)} in {growth.path}"


def _state(node: Node) -> tuple[str, str, tuple[str, ...]]:
    if node.pages is None:
        return "NO ANSWER", node.missing, ()
    word, sentence = headline(node.pages)
    return word, sentence, tuple(remarks(node.pages))


_FIRST_PIECES = 0.5  # seconds after which the speed is meaningful
_OFTEN = 5.0  # seconds between two lines


@contextlib.contextmanager
def shown(plan: Plan) -> Iterator[Callable[[Moment], None]]:
    """Show the progress until it is complete."""
    with WarmProgress(plan) as progress:
        yield progress.show


class WarmProgress:
    """Shows what will be read, then the expected duration, then the progress."""

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

    def show(self, moment: Moment) -> None:
        """Show this moment."""
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=moment.brought, total=moment.missing)  # type: ignore[attr-defined]
        if moment.left is None or moment.seconds < _FIRST_PIECES:
            return
        if not self._estimated:
            self._estimated = True
            self._next_line = time.monotonic() + _OFTEN
            announce(f"{in_bytes(moment.speed)}/s: about {in_time(moment.left)} to go")
        elif self._bar is None and time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + _OFTEN
            announce(
                f"read {in_bytes(moment.brought)} of {in_bytes(moment.missing)}, {in_bytes(moment.speed)}/s: "
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
