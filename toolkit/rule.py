"""What a check is: a pure function of facts that yields findings, and what is declared about it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from verl_doctor.toolkit.facts import Need, Unknown, needs_of

Severity = Literal["error", "warning", "info"]
Phase = Literal["import", "start"]
Cost = Literal["instant", "live", "gpu", "cluster", "slow"]

EVERY_JOB = "every job"
"""What a finding stops that leaves no path of a job."""

SEVERITIES: tuple[str, ...] = get_args(Severity)

_CODE = re.compile(r"[A-Z]{2,5}[0-9]{3}")


@dataclass(frozen=True)
class Evidence:
    """What was seen, what would have been right, and where it was read."""

    found: str
    wanted: str = ""
    read_from: str = ""


@dataclass(frozen=True)
class Location:
    """A file, and the line in it where there is one."""

    path: str
    line: int | None = None

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: said in a sentence, proven by evidence, with the next step.

    `severity` is the rule's own unless the finding lowers it. `fix` names the fix that would help. `stops` names the
    paths of a job (for instance "async rollout", or `EVERY_JOB`) that cannot run because of it, `may_stop` those that
    cannot under some setting. `phase` says when: while modules are "import"ed, or at the "start" of the engine or
    later. `also` are further places with the same root cause.
    """

    message: str
    evidence: Evidence
    location: Location | None = None
    remedy: str = ""
    severity: Severity | None = None
    fix: str | None = None
    stops: tuple[str, ...] = ()
    may_stop: tuple[str, ...] = ()
    phase: Phase | None = None
    also: tuple[Location, ...] = ()
    node: str | None = None


@dataclass(frozen=True)
class Unjudged:
    """One thing that a rule looked at and could not tell, and why: it is counted, and shown with -v."""

    what: str
    why: str
    location: Location


@dataclass(frozen=True)
class Example:
    """A case that is at once a test and documentation: facts in, and what the rule says to them.

    `expect` is a part of the message of the only finding, or None for silence.
    """

    name: str
    facts: tuple[Any, ...]
    expect: str | None = None


@dataclass(frozen=True)
class Check:
    """A rule: its judgement and everything the engine and the documentation need to know about it."""

    code: str
    judge: Callable[..., Iterator[Finding]]
    needs: tuple[Need, ...]
    severity: Severity = "error"
    cost: Cost = "instant"
    since: str = "0.1"
    requires: frozenset[str] = frozenset()
    applies: Callable[..., str | Unknown | None] | None = None
    applies_needs: tuple[Need, ...] = ()
    paths: Callable[..., tuple[str, ...]] | None = None
    paths_needs: tuple[Need, ...] = ()
    unjudged: Callable[..., tuple[Unjudged, ...]] | None = None
    unjudged_needs: tuple[Need, ...] = ()
    examples: tuple[Example, ...] = field(default=(), repr=False)

    @cached_property
    def title(self) -> str:
        """The first line of the rule's docstring."""
        lines = (inspect.getdoc(self.judge) or _name_of(self.judge)).splitlines()
        return lines[0].rstrip(".")

    @property
    def family(self) -> str:
        """The letters of the code."""
        return self.code.rstrip("0123456789")

    @property
    def documentation(self) -> str:
        """The docstring without its first line: Markdown with the headings *Why it matters* and *How to fix*."""
        return "\n".join((inspect.getdoc(self.judge) or "").splitlines()[1:]).strip()


def check(
    code: str,
    *,
    severity: Severity = "error",
    cost: Cost = "instant",
    since: str = "0.1",
    requires: Iterable[str] = (),
    applies: Callable[..., str | Unknown | None] | None = None,
    paths: Callable[..., tuple[str, ...]] | None = None,
    unjudged: Callable[..., tuple[Unjudged, ...]] | None = None,
    examples: Iterable[Example] = (),
) -> Callable[[Callable[..., Iterator[Finding]]], Check]:
    """Declare a rule.

    `requires` are codes that must have passed, or this rule is skipped: one root cause gives one red line.
    `applies` is a function of facts that returns why the rule is irrelevant here, or None when it is relevant. An
    `Unknown` that it returns is the answer, as if the rule had needed that fact.
    `paths` is a function of facts that returns the paths of a job that the rule judges, for instance "async rollout";
    a finding names those it `stops`. `unjudged` is a function of facts that returns what the rule cannot tell.

    Raises TypeError or ValueError at import when the declaration is wrong.
    """

    def declare(function: Callable[..., Iterator[Finding]]) -> Check:
        if not _CODE.fullmatch(code):
            raise ValueError(
                f"{function.__name__}: '{code}' is no rule code (family letters and three digits)"
            )
        if not inspect.getdoc(function) and sys.flags.optimize < 2:  # -OO takes the docstrings away
            raise ValueError(f"{code}: a rule is documented by its docstring")
        return Check(
            code=code,
            judge=function,
            needs=needs_of(function),
            severity=severity,
            cost=cost,
            since=since,
            requires=frozenset(requires),
            applies=applies,
            applies_needs=needs_of(applies) if applies else (),
            paths=paths,
            paths_needs=needs_of(paths) if paths else (),
            unjudged=unjudged,
            unjudged_needs=needs_of(unjudged) if unjudged else (),
            examples=tuple(examples),
        )

    return declare


def _name_of(function: Callable[..., Any]) -> str:
    return function.__name__.replace("_", " ").capitalize()
