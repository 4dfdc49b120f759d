"""Signatures: texts that identify a fault in a log, as data.

They are in `checks/data/signatures/*.toml`, each with logs that match and logs that do not. A pattern is
plain text in which `*` stands for anything within a line, and `{>60}` or `{<3}` for a number beyond a limit.
Matching finds its parts one after the other, in linear time for any log.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Literal, get_args

from ahocorasick_rs import AhoCorasick

from verl_doctor.toolkit.engine.signature_files import entries_of, indexed_entries, titles_of
from verl_doctor.toolkit.logs.stage import STAGES

Kind = Literal["cause", "weak", "hint", "note", "job", "raised", "ended", "consequence"]
"""What a text proves when it is the first in the log.

cause: this fault. weak: this fault, unless another cause that also leads to it is logged. hint: a fault that
counts only where nothing else is logged. note: worth a look, but stops no run. job: a fault of the job's own
code, model, data or settings, not of the environment. raised: what an exception proves by where it was
raised, whatever its message (`blame`); it has no texts. ended: the run was ended from outside; with a code it
is the cause where nothing else is logged. consequence: another process or step failed.
"""

_OF_SETTINGS = (
    "CFG",
    "DATA",
    "LOAD101",
    "LOG200",
    "LOG280",
    "LOG281",
    "LOG287",
    "LOG288",
)  # codes, and beginnings of codes
OF_LOGS = "LOG"
"""The family of faults that only logs show."""

_KINDS = get_args(Kind)
_NAMED: tuple[Kind, ...] = ("cause", "weak", "hint", "note")
_LIMIT = re.compile(r"\{([<>])(\d+(?:\.\d+)?)\}")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,12})?")


@dataclass(frozen=True)
class Limit:
    """Words with a number between them that is above or below a bound."""

    before: str
    is_above: bool
    bound: float
    after: str

    def end(self, text: str, at: int) -> int:
        """Return where they end in a text, searching from `at`; -1 if they do not occur."""
        while (at := text.find(self.before, at)) >= 0:
            at += len(self.before)
            found = _NUMBER.match(text, at)
            if found is not None and text.startswith(self.after, found.end()):
                number = float(found[0])
                if number > self.bound if self.is_above else number < self.bound:
                    return found.end() + len(self.after)
        return -1


@dataclass(frozen=True)
class LogExample:
    """A log of a few lines, and whether the signature matches in it."""

    log: str
    speaks: bool


@dataclass(frozen=True)
class Signature:
    """One fault as it appears in logs.

    `code` is the code of the rule that finds the fault in the environment, or the signature's own
    (LOG101...). `title` states what is proven, `remedy` what to do. `patterns` are alternatives; `unless` are
    texts that rule it out. With `frames`, one of these texts must occur in the last place of the traceback,
    and none of `unless_frames` may. Where that place is known, it must contain one of the texts of `within`.
    A hint or a note `leads_to` the faults with these codes: logged before one of them, it is the first cause,
    and so is a cause that `leads_to` them, wherever it was logged; "ended" stands for a run that was stopped
    after waiting long enough. A signature that must be `raised` counts only as the message of an exception:
    programs also complain about optional parts. `warning` counts lines that a logger marks as warnings too,
    `whole` requires a pattern to match the whole line, `named` marks a general remedy, which follows what the
    exception itself names (`otherwise` is its first step if the exception names none), `of_package` a fault
    of the package that raises it, which the same exception in a file of the job is not, `of_variable` one
    that only a source line which reads an environment variable raises, and `of_worker` counts only lines of a
    Ray worker or an engine's process, not of the script's program. `confirm` are the rules that would confirm
    the fault, if other than the rule with its code; `deep` means that they do so only in `check --deep`.
    `sources` are the threads in which the remedy helped ("owner/name#1"). `quotes` is how many lines after
    its own it shows. `at` are the remedies by stage of the job (`stage`). A consequence's remedy states where
    to look for the cause. `group` is what several faults with one code have in common.
    """

    code: str
    kind: Kind
    title: str
    patterns: tuple[tuple[str | Limit, ...], ...]
    group: str = ""
    unless: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    unless_frames: tuple[str, ...] = ()
    leads_to: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    remedy: str = ""
    warning: bool = False
    raised: bool = False
    deep: bool = False
    whole: bool = False
    named: bool = False
    otherwise: str = ""
    of_worker: bool = False
    of_package: bool = False
    of_variable: bool = False
    within: tuple[str, ...] = ()
    quotes: int = 0
    sources: tuple[str, ...] = ()
    at: Mapping[str, str] = field(default_factory=dict, hash=False)
    examples: tuple[LogExample, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The codes of the rules that look for it in the environment."""
        return self.confirm or (() if self.is_of_logs_alone else (self.code,))

    @property
    def is_of_logs_alone(self) -> bool:
        """Whether only a log can show it: no rule has its code."""
        return not self.code or self.code.startswith(OF_LOGS)

    @property
    def is_of_settings(self) -> bool:
        """Whether a setting, a path or a value of the job is refused.

        The user then has to change it, not the environment.
        """
        return self.code.startswith(_OF_SETTINGS)

    @property
    def is_named(self) -> bool:
        """Whether it is a fault of the environment or the settings that has a code."""
        return self.kind in _NAMED or (self.kind == "ended" and bool(self.code))

    def matches(self, lines: Iterable[str], frame: str = "") -> bool:
        """Return whether a line of a message matches; `frame` is where an exception was raised."""
        if self.frames and not any(word in frame for word in self.frames):
            return False
        if any(word in frame for word in self.unless_frames):
            return False
        if frame and self.within and not any(word in frame for word in self.within):
            return False
        return any(
            any(_in_order(parts, line) for parts in self.patterns)
            and not (self.whole and (line.strip(),) not in self.patterns)
            and not any(word in line for word in self.unless)
            for line in lines
        )


def _in_order(parts: Sequence[str | Limit], text: str) -> bool:
    at = 0
    for part in parts:
        if isinstance(part, Limit):
            at = part.end(text, at)
        else:
            at = text.find(part, at)
            at += len(part) if at >= 0 else 0
        if at < 0:
            return False
    return True


def _parts(pattern: str) -> Iterator[str | Limit]:
    """Yield the parts of a pattern.

    Raises TypeError for a number that follows no word, or for two in one part.
    """
    for words in pattern.split("*"):
        before, *limit = _LIMIT.split(words)
        if not limit:
            yield from [words] * bool(words)
        elif before and len(limit) == 3:
            yield Limit(before, limit[0] == ">", float(limit[1]), limit[2])
        else:
            raise TypeError(f"{pattern}: only one number in each part, after words")


@cache
def signatures() -> tuple[Signature, ...]:
    """Return all signatures, sorted by file name, then in the order of the file.

    The first that matches a text counts.

    Raises ValueError for a file with invalid content.
    """
    return tuple(_entry(entry, name) for name, entries in indexed_entries().items() for entry in entries)


def read(text: str, name: str) -> Iterator[Signature]:
    """Yield the signatures of one file. Raises ValueError."""
    return (_entry(entry, name) for entry in entries_of(text))


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
    unless_frames: Sequence[str] = (),
    within: Sequence[str] = (),
    leads_to: Sequence[str] = (),
    confirm: Sequence[str] = (),
    sources: Sequence[str] = (),
    **more: Any,
) -> Signature:
    if kind not in _KINDS:
        raise TypeError(f"kind is one of {', '.join(_KINDS)}")
    if kind != "ended" and bool(code) != (kind in {*_NAMED, "raised"}):
        raise TypeError("what is named has a code, and nothing else has")
    if unknown := set(more.get("at", ())) - set(STAGES):
        raise TypeError(f"no stage: {', '.join(sorted(unknown))}")
    if leads_to and kind not in {"hint", "note", "cause"}:
        raise TypeError("only a cause, a hint or a note leads to something else")
    return Signature(
        code=code,
        kind=kind,  # type: ignore[arg-type]
        title=title,
        patterns=tuple(tuple(_parts(pattern)) for pattern in patterns),
        unless=tuple(unless),
        frames=tuple(frames),
        unless_frames=tuple(unless_frames),
        within=tuple(within),
        leads_to=tuple(leads_to),
        confirm=tuple(confirm),
        sources=tuple(sources),
        examples=(
            *(LogExample(log, speaks=True) for log in speaks),
            *(LogExample(log, speaks=False) for log in silent),
        ),
        **more,
    )


def of_code(code: str) -> tuple[Signature, ...]:
    """Return the signatures with this code, in their order."""
    return tuple(signature for signature in signatures() if signature.code == code)


def of_logs_alone() -> Mapping[str, str]:
    """Return the codes of the faults that no rule finds, sorted, with their titles."""
    return titles_of(OF_LOGS)


@cache
def _screen() -> tuple[AhoCorasick, tuple[tuple[int, ...], ...]]:
    """Return a search for each pattern's longest text, and the numbers of the signatures with each text.

    Without one of its texts a signature cannot match.
    """
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, signature in enumerate(signatures()):
        for parts in signature.patterns:
            numbers[max((_words(part) for part in parts), key=len)].append(number)
    return AhoCorasick(list(numbers)), tuple(map(tuple, numbers.values()))


def _words(part: str | Limit) -> str:
    return part.before if isinstance(part, Limit) else part


@lru_cache(maxsize=2048)
def which(message: str, frame: str = "") -> Signature | None:
    """Return the first signature that matches a message of one or more lines. Results are cached."""
    lines = message.split("\n")
    search, numbers = _screen()
    matches = search.find_matches_as_indexes(message, overlapping=True)
    candidates = (
        signatures()[number]
        for number in sorted({number for text, *_ in matches for number in numbers[text]})
    )
    return next((signature for signature in candidates if signature.matches(lines, frame)), None)
