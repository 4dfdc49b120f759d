"""What a step of verl leaves outside of its folders: shared memory and sockets under fixed folders. It is gone afterwards.

verl names its sockets after the Ray job (`/tmp/rl-colocate-zmq-JOB-...`), which is the rehearsal's own word. Segments of shared memory
(`verl_weights_*`, and Python's `psm_*`) are new since the beginning, this user's, and mapped by nobody.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from verl_doctor.toolkit.machine import Machine

_SEGMENT = re.compile(r"psm_\w+|verl_weights_\w+|torch_\d+_\d+_\d+|sem\.mp-\w+")
_MAPPED = re.compile(r"/dev/shm/(\S+)")  # noqa: S108


class Left:
    """While a run goes on inside, what it leaves is told from what was there. On the way out it is removed."""

    def __init__(self, machine: Machine, variables: Mapping[str, str | None]) -> None:
        self._machine = machine
        self._job = variables.get("VERL_DOCTOR_JOB")
        self._before: frozenset[str] = frozenset()

    def __enter__(self) -> None:
        self._before = frozenset(self._segments())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path in [*self._new_segments(), *self._sockets()]:
            with contextlib.suppress(OSError):
                path.unlink()

    def _segments(self) -> list[str]:
        return [path.name for path in _entries(self._machine.at("/dev/shm")) if _SEGMENT.fullmatch(path.name)]  # noqa: S108

    def _new_segments(self) -> Iterator[Path]:
        new = set(self._segments()) - self._before
        mapped = self._mapped() if new else set()
        for name in sorted(new - mapped):
            path = self._machine.at(f"/dev/shm/{name}")  # noqa: S108
            with contextlib.suppress(OSError):
                if path.lstat().st_uid == os.geteuid():
                    yield path

    def _mapped(self) -> set[str]:
        """The segments that a living process has mapped, as far as this user may see."""
        found: set[str] = set()
        for process in _entries(self._machine.at("/proc")):
            if process.name.isdecimal():
                found.update(_MAPPED.findall(self._machine.read(f"/proc/{process.name}/maps") or ""))
        return found

    def _sockets(self) -> Iterator[Path]:
        if self._job:
            yield from self._machine.at("/tmp").glob(f"rl-colocate-zmq-{self._job}-*")  # noqa: S108


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
