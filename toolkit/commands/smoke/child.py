"""Run one child of a smoke test: output to a file, a time limit, and a watcher that may end it earlier.

All its descendants end with it (`supervised_program`).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

from verl_doctor.toolkit.commands.smoke.kernel_builds import Builds
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import smoke_steps
from verl_doctor.toolkit.system.process_table import below
from verl_doctor.toolkit.system.supervised import SupervisedProgram, supervised_program

EndedFor = Literal[
    "", "flood", "no answer from Ray", "no node", "no room", "process failed", "stopped", "time"
]
"""Why a child was ended.

flood: it wrote too much; no answer from Ray: its cluster is gone; no node, no room: Ray has none for the job;
process failed: the trainer waits for a dead process; stopped: its rung was stopped; time: its limit is over.
"""


class End(NamedTuple):
    """Why a child is ended: for code, and as a sentence."""

    kind: EndedFor
    sentence: str


Watch = Callable[[str], "End | None"]
"""Receives the output so far; an `End` ends the child, None lets it continue."""

_MOST = 16 * 1024 * 1024  # bytes of a log; a child that writes more is ended
_PIECE = 1024 * 1024  # bytes per read
_LOOK = 1.0  # seconds between two looks at the text and at the processes
_POLL_INTERVAL = 0.2  # seconds; also between two looks at a child that the system does not notify about
_RUN = """
import sys, types
name, steps, path = sys.argv[1:4]
del sys.argv[1:4]
sys.modules[name] = types.ModuleType(name)
exec(compile(open(steps).read(), steps, "exec"), sys.modules[name].__dict__)
exec(compile(open(path).read(), path, "exec"), globals())
"""
DOCUMENT_PATH = "VERL_DOCTOR_TOLD"
"""Names the file to which a child writes its results, one JSON document per line."""


@dataclass(frozen=True)
class Ran:
    """How a child ended. `code` is its exit status (negative for a signal), None if it was ended before.

    `why_ended` is the reason as a sentence and `ended_for` the same for code, both "" if it ended by itself.
    `documents` are those that it has written. `builds` is the GPU code that was compiled meanwhile, None for
    nothing.
    """

    code: int | None
    log: Path
    seconds: float
    why_ended: str = ""
    documents: tuple[Mapping[str, Any], ...] = ()
    builds: Builds | None = None
    ended_for: EndedFor = ""

    @property
    def ending(self) -> str:
        """Why it was ended, and what its compilers were doing then."""
        if self.builds is None or not self.builds.going_on or not self.why_ended:
            return self.why_ended
        return f"{self.why_ended}: nvcc had been compiling {self.builds.what} for {self.builds.seconds:.0f} s"

    @property
    def text(self) -> str:
        """Its output."""
        return self.log.read_text("utf-8", "replace")


def script(python: str, module: ModuleType, *arguments: str) -> list[str]:
    """Return how to run a `probes.smoke_*` module in another interpreter.

    It runs as a program that imports its reporting functions.

    It is not run by its path, because its folder would come first on that interpreter's module path.
    """
    steps = smoke_steps
    return [python, "-c", _RUN, steps.__name__, str(steps.__file__), str(module.__file__), *arguments]


def run_logged(
    argv: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    log: Path,
    *,
    limit: float,
    watch: Watch | None = None,
    look: Callable[[Collection[tuple[int, int]]], None] = lambda _: None,
    at: Callable[[str], None] = lambda _: None,
) -> Ran:
    """Run a child in `folder` for at most `limit` seconds, and write its output to `log`.

    Besides `watch`, `look` is called about once a second, and once more before the child is ended, while all
    its processes exist. It receives the processes seen below the child, by number and start. `at` receives
    the child's current step, "" between two steps. Raises OSError if the child cannot be started.
    """
    begun = time.monotonic()
    documents_path = log.with_suffix(".told")
    end: End | None = None
    with (
        log.open("wb") as file,
        supervised_program(argv, {**environ, DOCUMENT_PATH: str(documents_path)}, str(folder)) as child,
    ):
        listener = _Listener(child, file.fileno())
        try:
            while end is None and not listener.has_ended(_POLL_INTERVAL):
                if listener.is_due():
                    look(below(child.supervisor.pid, Machine()))
                    at(unfinished(_documents(documents_path)))
                    end = watch(listener.text) if watch else None
                if listener.flooded:
                    end = End("flood", f"it was ended after writing more than {_MOST // 1024 // 1024} MB")
                elif end is None and time.monotonic() - begun > limit:
                    end = End("time", f"it did not finish within {limit:.0f} s")
        finally:
            look(below(child.supervisor.pid, Machine()))
            listener.take_the_rest()
    seconds = time.monotonic() - begun
    documents = _documents(documents_path)
    documents_path.unlink(missing_ok=True)
    if end is None:
        return Ran(child.code, log, seconds, documents=documents)
    return Ran(None, log, seconds, end.sentence, documents, ended_for=end.kind)


def unfinished(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the step that began and did not finish, "" if there is none."""
    ended = {document["step"] for document in documents if "step" in document}
    begun = [str(document["begun"]) for document in documents if "begun" in document]
    return begun[-1] if begun and begun[-1] not in ended else ""


class _Listener:
    """Writes a child's output to a file, and detects its end."""

    def __init__(self, child: SupervisedProgram, file: int) -> None:
        self._child, self._pipe, self._file = child, child.output, file
        self._output = bytearray()
        self._next = time.monotonic() + _LOOK
        os.set_blocking(self._pipe.fileno(), False)
        self._open = True
        self.flooded = False

    @property
    def text(self) -> str:
        """The output so far."""
        return self._output.decode("utf-8", "replace")

    def is_due(self) -> bool:
        """Return whether the next look is due."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOOK
        return True

    def has_ended(self, patience: float) -> bool:
        """Wait for output or for the child's end, at most this long.

        A grandchild may keep the pipe open forever, so its closing is not awaited.
        """
        with selectors.DefaultSelector() as selector:
            if self._open and not self.flooded:
                selector.register(self._pipe, selectors.EVENT_READ)
            selector.register(self._child, selectors.EVENT_READ)
            if any(key.fileobj is self._pipe for key, _ in selector.select(patience)):
                self._take()
        return self._child.has_ended()

    def take_the_rest(self) -> None:
        """Read the rest of the pipe, and close it."""
        while self._open and not self.flooded and self._take():
            pass
        self._pipe.close()

    def _take(self) -> bool:
        """Read one piece. Return whether there was any."""
        try:
            piece = os.read(self._pipe.fileno(), _PIECE)
        except BlockingIOError:
            return False
        self._open = piece != b""
        kept = piece[: _MOST - len(self._output)]
        self._output += kept
        os.write(self._file, kept)
        self.flooded = len(kept) < len(piece)
        return self._open


def _documents(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the results of a child: complete lines that are JSON objects.

    A child that was ended may have left a partial one.
    """
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_text("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                document = json.loads(line)
                if isinstance(document, dict):
                    found.append(document)
    return tuple(found)
