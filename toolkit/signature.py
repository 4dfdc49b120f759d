"""What a fault looks like in a log: texts that name it, as data.

`checks/data/signatures/*.toml` holds them, each with logs in which it speaks and such in which it is silent. A pattern is plain text
in which `*` stands for anything within a line: to match is to find its parts one behind the other, in linear time
whatever the log holds.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from verl_doctor.toolkit import toml

Kind = Literal["cause", "weak", "hint", "job", "ended", "consequence"]
"""What a text proves when it is the first that was said.

cause: this fault. weak: this fault, unless another cause is told, which has it as a consequence too. hint: something
that is not right and need not have stopped the run. job: a fault of the job's own code, model, data or settings, not of the
environment. ended: somebody ended the run. consequence: that another process or step failed.
"""

_KINDS = get_args(Kind)
_NAMED: tuple[Kind, ...] = ("cause", "weak", "hint")


@dataclass(frozen=True)
class LogExample:
    """A log of a few lines, and the words that the answer quotes; None where the signature says nothing."""

    log: str
    speaks: bool


@dataclass(frozen=True)
class Signature:
    """One fault as logs tell it.

    `code` is that of the rule which finds the fault in the environment, or one of its own (LOG101...). `title` says what is
    proven, `remedy` what to do. `patterns` are alternatives; `unless` are texts that rule it out. With `frames`, one of
    these texts must stand in the last place of the traceback. `deep` says that only `check --deep` would confirm it.
    """

    code: str
    kind: Kind
    title: str
    patterns: tuple[tuple[str, ...], ...]
    unless: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    remedy: str = ""
    warning: bool = False
    deep: bool = False
    examples: tuple[LogExample, ...] = ()

    @property
    def is_named(self) -> bool:
        """Whether it is a fault of the environment or of the settings, for which there is a code."""
        return self.kind in _NAMED

    def matches(self, lines: Iterable[str], frame: str = "") -> bool:
        """Whether one of the lines of a message says it; `frame` is where an exception was raised."""
        if self.frames and not any(word in frame for word in self.frames):
            return False
        return any(
            any(_in_order(parts, line) for parts in self.patterns)
            and not any(word in line for word in self.unless)
            for line in lines
        )


def _in_order(parts: Sequence[str], text: str) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@cache
def signatures() -> tuple[Signature, ...]:
    """All of them: files in the order of their names, and those of a file in theirs. The first that matches a text counts.

    Raises ValueError for a file that holds something else.
    """
    folder = Path(next(iter(importlib.import_module("verl_doctor.checks").__path__))) / "data" / "signatures"
    return tuple(
        one for path in sorted(folder.glob("*.toml")) for one in read(path.read_text("utf-8"), path.name)
    )


def read(text: str, name: str) -> Iterator[Signature]:
    """The signatures of one file. Raises ValueError."""
    return (_entry(entry, name) for entry in toml.loads(text).get("signature", []))


def _entry(entry: dict[str, Any], name: str) -> Signature:
    try:
        return _signature(**entry)
    except TypeError as error:
        raise ValueError(f"{name}: {entry.get('title', entry)}: {error}") from None


def _signature(
    *,
    title: str,
    patterns: list[str],
    code: str = "",
    kind: str = "cause",
    speaks: Sequence[str] = (),
    silent: Sequence[str] = (),
    unless: Sequence[str] = (),
    frames: Sequence[str] = (),
    **more: Any,
) -> Signature:
    if kind not in _KINDS:
        raise TypeError(f"kind is one of {', '.join(_KINDS)}")
    if bool(code) != (kind in _NAMED):
        raise TypeError("what is named has a code, and nothing else has")
    return Signature(
        code=code,
        kind=kind,  # type: ignore[arg-type]
        title=title,
        patterns=tuple(tuple(part for part in one.split("*") if part) for one in patterns),
        unless=tuple(unless),
        frames=tuple(frames),
        examples=(
            *(LogExample(log, speaks=True) for log in speaks),
            *(LogExample(log, speaks=False) for log in silent),
        ),
        **more,
    )


@lru_cache(maxsize=2048)
def which(message: str, frame: str = "") -> Signature | None:
    """The first signature that matches a message of one or more lines. What is said again is not looked up again."""
    lines = message.split("\n")
    return next((one for one in signatures() if one.matches(lines, frame)), None)
