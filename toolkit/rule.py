"""What a check is: a pure function of facts that yields findings, and what is declared about it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, get_args

from verl_doctor.toolkit.facts import Need, Unknown, needs_of

Severity = Literal["error", "warning", "info"]
Phase = Literal[
    "shell",
    "import",
    "composition",
    "validation",
    "ray",
    "workers",
    "engine",
    "start",
    "first batch",
    "first update",
    "first validation",
    "checkpoint",
]
"""When a fault strikes, in the order in which a job gets there.

shell: before Python runs; import: while modules are imported; composition: while Hydra composes the configuration;
validation: while verl validates it; ray: while Ray is started or joined; workers: while workers start and load the model;
engine: while the inference engine starts; start: at engine start or later, where a rule cannot tell more precisely; then the
first batch, the first update of the weights, the first validation, and the first checkpoint.
"""

PHASES: tuple[Phase, ...] = get_args(Phase)
"""All of them: `PHASES.index` orders two findings by which strikes first."""

WHEN: Final[Mapping[Phase, tuple[str, str]]] = {
    "shell": ("in the shell", "at once"),
    "import": ("in its imports", "about 10 s after the start"),
    "composition": ("in composition", "about 10 s after the start"),
    "validation": ("in validation", "about 10 s after the start"),
    "ray": ("when Ray starts", "within a minute"),
    "workers": ("when its workers start", "about a minute after the start"),
    "engine": ("when its engine starts", "a minute or two after the start"),
    "start": ("at engine start or later", ""),
    "first batch": ("at its first batch", "two minutes or more after the start"),
    "first update": ("at its first update", "two minutes or more after the start"),
    "first validation": ("at its first validation", ""),
    "checkpoint": ("at its first checkpoint", ""),
}
"""When a phase is reached, in words: where, and how long after the start ("" where that depends on the job).

Measured with verl 0.9.1 and a model of two layers on one H200; loading a large model comes on top.
"""

Cost = Literal["instant", "live", "gpu", "cluster", "slow"]

SubjectKind = Literal[
    "actor",
    "address",
    "attention backend",
    "cluster",
    "column",
    "device",
    "driver",
    "file",
    "folder",
    "interface",
    "interpreter",
    "library",
    "limit",
    "memory",
    "model",
    "node",
    "package",
    "path",
    "plugin",
    "port",
    "process",
    "resource",
    "rung",
    "setting",
    "site",
    "source",
    "symbol",
    "tracker",
    "variable",
    "worker group",
]
"""What kinds of things findings are about.

setting: a key of verl's configuration; symbol: a dotted name of Python code; library: a shared object; limit: a limit of
the kernel, a container or Ray; memory: one that something may run out of; path: a path of a job; rung: one of the smoke
test; site: a path of this cluster by its configured name; source: a file of source code that is read, not run.
"""

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
class Subject:
    """What a finding is about, for code to decide by: its kind and its name, spelled as the thing itself is.

    A variable's name is that of the variable, a setting's its dotted key, a file's its path, a device's its index. Two
    findings of one rule about one subject are the same fault. `detail` tells apart what shares a name: an installed
    version, the argument of a call, the other file.
    """

    kind: SubjectKind
    name: str
    detail: str = ""


@dataclass(frozen=True)
class Rewrite:
    """A word of the command that starts training, to be written otherwise.

    `old` is the word as the shell hands it over, "" where one is to be added; `new` is None for one that is to go.
    `at` is where the old one stands.
    """

    old: str
    new: str | None
    at: Location | None = None


@dataclass(frozen=True)
class Correction:
    """What would have to stand in the launch script for a fault to be gone.

    `why` is the arithmetic, or what is known about the new value. `effect` is what it changes of the training, "" for
    nothing: a correction without an effect is safe. `code` is that of the rule.
    """

    code: str
    rewrites: tuple[Rewrite, ...]
    why: str = ""
    effect: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: told in a sentence, proven by evidence, with the next step.

    `subject` is what it is about; fixes, renderers and judges decide by it and never read `message` or `evidence`.
    `severity` and `phase`, when it strikes, are the rule's own unless the finding has others. `fix` names the fix that
    would help. An error stops the paths of a job that `stops` names (for instance "async rollout"), all of them when that
    is empty or holds `EVERY_JOB`; a warning is not sure to. `may_stop` are paths that cannot run under some setting.
    `also` are further places with the same root cause. `correction` is what to write into the launch script, where a rule can tell.
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
    subject: Subject | None = None
    correction: Correction | None = None


@dataclass(frozen=True)
class Unjudged:
    """One thing that a rule looked at and could not tell, and why: it is counted, and shown with -v.

    `paths` are the paths of a job of which nothing can be told because of it.
    """

    what: str
    why: str
    location: Location
    paths: tuple[str, ...] = ()


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
    phase: Phase | None = None
    cost: Cost = "instant"
    since: str = "0.1"
    requires: frozenset[str] = frozenset()
    applies: Callable[..., str | Unknown | None] | None = None
    applies_needs: tuple[Need, ...] = ()
    paths: Callable[..., tuple[str, ...]] | None = None
    paths_needs: tuple[Need, ...] = ()
    unjudged: Callable[..., tuple[Unjudged, ...]] | None = None
    unjudged_needs: tuple[Need, ...] = ()
    cases: Iterable[Example] | Callable[[], Iterable[Example]] = field(default=(), repr=False, compare=False)
    case_names: Callable[[], tuple[tuple[str, bool], ...]] | None = field(
        default=None, repr=False, compare=False
    )

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """The cases that are at once tests and documentation. They are built when they are asked for."""
        return tuple(self.cases() if callable(self.cases) else self.cases)

    @property
    def named_examples(self) -> tuple[tuple[str, bool], ...]:
        """The name of each example, and whether the rule reports something in it. An index has them without the facts."""
        if self.case_names is not None:
            return self.case_names()
        return tuple((example.name, example.expect is not None) for example in self.examples)

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
    phase: Phase | None = None,
    cost: Cost = "instant",
    since: str = "0.1",
    requires: Iterable[str] = (),
    applies: Callable[..., str | Unknown | None] | None = None,
    paths: Callable[..., tuple[str, ...]] | None = None,
    unjudged: Callable[..., tuple[Unjudged, ...]] | None = None,
    examples: Iterable[Example] | Callable[[], Iterable[Example]] = (),
) -> Callable[[Callable[..., Iterator[Finding]]], Check]:
    """Declare a rule.

    `severity` is that of its findings, and `phase` is when they strike, unless a finding names its own.
    `requires` are codes that must have passed, or this rule is skipped: one root cause gives one red line.
    `applies` is a function of facts that returns why the rule is irrelevant here, or None when it is relevant. An
    `Unknown` that it returns is the answer, as if the rule had needed that fact.
    `paths` is a function of facts that returns the paths of a job that the rule judges, for instance "async rollout";
    a finding names those it `stops`. `unjudged` is a function of facts that returns what the rule cannot tell.
    `examples` may be a function that returns them, so that a start does not build the facts of all examples.

    Raises TypeError or ValueError at import when the declaration is wrong.
    """

    def declare(function: Callable[..., Iterator[Finding]]) -> Check:
        if not _CODE.fullmatch(code):
            raise ValueError(
                f"{function.__name__}: '{code}' is not a rule code (family letters and three digits)"
            )
        if not function.__doc__ and sys.flags.optimize < 2:  # -OO takes the docstrings away
            raise ValueError(f"{code}: a rule is documented by its docstring")
        return Check(
            code=code,
            judge=function,
            needs=needs_of(function),
            severity=severity,
            phase=phase,
            cost=cost,
            since=since,
            requires=frozenset(requires),
            applies=applies,
            applies_needs=needs_of(applies) if applies else (),
            paths=paths,
            paths_needs=needs_of(paths) if paths else (),
            unjudged=unjudged,
            unjudged_needs=needs_of(unjudged) if unjudged else (),
            cases=examples,
        )

    return declare


def _name_of(function: Callable[..., Any]) -> str:
    return function.__name__.replace("_", " ").capitalize()
