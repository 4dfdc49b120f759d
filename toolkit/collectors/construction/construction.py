"""The stages of the construction and how each ended, as a fact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.collectors.construction.world import World

Ended = Literal["ok", "breaks", "hangs", "crashes", "not there", "not needed", "not judged", "not reached"]
"""How a stage ended.

breaks: verl, the engine or the user's code raised; hangs: it took longer than it may; crashes: the process died in it; not there:
this release has no such part; not needed: this job has none; not judged: it needs what is not had here; not reached: one before it did not succeed.
"""

BAD: frozenset[Ended] = frozenset({"breaks", "hangs", "crashes"})


@dataclass(frozen=True)
class Frame:
    """A line of code that an exception came through. `of` is "verl", "vllm", "user" or "" for libraries."""

    file: str
    line: int
    function: str
    of: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Built:
    """One stage. `kind` and `text` are the exception's class and words, or why it is not judged; `key` the setting that it names.

    `word` is the override of the command that gave the setting its value, with its place: "" and 0 where none did. `users` says that it
    ran code of the user's.
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
        """The innermost line of this owner."""
        return next((frame for frame in reversed(self.frames) if frame.of == of), None)


@dataclass(frozen=True)
class Construction:
    """All stages in the order in which they ran. `own_code` are the files of the user's that were run.

    `world` is one rank of all the job's GPUs, None where none was made.
    """

    stages: tuple[Built, ...] = ()
    seconds: float = 0.0
    own_code: tuple[str, ...] = ()
    world: World | None = None

    def bad(self, *names: str) -> Iterator[Built]:
        """Those of these stages that broke, hung or crashed, each fault once: where it first showed."""
        seen = set()
        for built in self.stages:
            if built.ended in BAD and (fault := (built.kind, built.text)) not in seen:
                seen.add(fault)
                if built.stage in names:
                    yield built

    def get(self, name: str) -> Built | None:
        """The stage of this name."""
        return next((built for built in self.stages if built.stage == name), None)
