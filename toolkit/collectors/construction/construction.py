"""The stages of the construction and the outcome of each, as a fact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.collectors.construction.world import World

Ended = Literal["ok", "breaks", "hangs", "crashes", "not there", "not needed", "not judged", "not reached"]
"""The outcome of a stage.

breaks: verl, the engine or the user's code raised; hangs: it exceeded its time limit; crashes: the process
died in it; not there: this release has no such part; not needed: this job has none; not judged: it needs
something unavailable here; not reached: an earlier stage failed.
"""

BAD: frozenset[Ended] = frozenset({"breaks", "hangs", "crashes"})


@dataclass(frozen=True)
class Frame:
    """A line of code in an exception's traceback. `of` is "verl", "vllm", "user" or "" for libraries."""

    file: str
    line: int
    function: str
    of: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Built:
    """The result of one stage.

    `kind` and `text` are the exception's class and message, or why it is not judged; `key` the setting that
    it names. `word` is the override on the command line that set the value, with its place: "" and 0 if there
    is none. `users`: it ran the user's own code.
    """

    stage: str
    ended: Ended
    seconds: float = 0.0
    kind: str = ""
    text: str = ""
    key: str = ""
    word: str = ""
    path: str = ""
    line: int = 0
    frames: tuple[Frame, ...] = ()
    users: bool = False

    def frame(self, of: str) -> Frame | None:
        """Return the innermost line of this owner."""
        return next((frame for frame in reversed(self.frames) if frame.of == of), None)


@dataclass(frozen=True)
class Construction:
    """All stages in the order in which they ran. `own_code` are the user's own files that were run.

    `world` is one rank of all the job's GPUs, None if none was created.
    """

    stages: tuple[Built, ...] = ()
    seconds: float = 0.0
    own_code: tuple[str, ...] = ()
    world: World | None = None

    def bad(self, *names: str) -> Iterator[Built]:
        """Those of these stages that broke, hung or crashed; a repeated fault only where it first appears."""
        seen = set()
        for built in self.stages:
            if built.ended in BAD and (fault := (built.kind, built.text)) not in seen:
                seen.add(fault)
                if built.stage in names:
                    yield built

    def get(self, name: str) -> Built | None:
        """Return the stage of this name."""
        return next((built for built in self.stages if built.stage == name), None)
