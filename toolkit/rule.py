"""Checks: pure functions of facts that yield findings, with their declarations."""

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
    "end",
]
"""When a fault strikes, in the order in which a job gets there.

shell: before Python runs; import: while modules are imported; composition: while Hydra composes the
configuration; validation: while verl validates it; ray: while Ray is started or joined; workers: while
workers start and load the model; engine: while the inference engine starts; start: at engine start or later,
where a rule cannot be more precise; then the first batch, the first update of the weights, the first
validation, and the first checkpoint; end: when the training is over.
"""

PHASES: tuple[Phase, ...] = get_args(Phase)
"""All phases: `PHASES.index` orders two findings by which strikes first."""

WHEN: Final[Mapping[Phase, tuple[str, str]]] = {
    "shell": ("in the shell", "at once"),
    "import": ("in its imports", "about 10 s after the start"),
    "composition": ("when Hydra composes its configuration", "about 10 s after the start"),
    "validation": ("when verl validates its configuration", "about 10 s after the start"),
    "ray": ("when Ray starts", "within a minute"),
    "workers": ("when its workers start", "about a minute after the start"),
    "engine": ("when its engine starts", "a minute or two after the start"),
    "start": ("at engine start or later", ""),
    "first batch": ("at its first batch", "two minutes or more after the start"),
    "first update": ("at its first update", "two minutes or more after the start"),
    "first validation": ("at its first validation", ""),
    "checkpoint": ("at its first checkpoint", ""),
    "end": ("when the training is over", ""),
}
"""When a phase is reached, as text: where, and how long after the start ("" where that depends on the job).

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
"""Kinds of subjects that findings are about.

setting: a key of verl's configuration; symbol: a dotted name of Python code; library: a shared object; limit:
a limit of the kernel, a container or Ray; memory: memory that something may run out of; path: a path of a
job; rung: a step of the smoke test; site: a path of this cluster by its configured name; source: a source
file that is read, not run.
"""

EVERY_JOB = "every job"
"""What an error stops after which no path of a job can run."""

SEVERITIES: tuple[str, ...] = get_args(Severity)

_CODE = re.compile(r"[A-Z]{2,5}[0-9]{3}")


@dataclass(frozen=True)
class Evidence:
    """What was found, what was expected, and where it was read."""

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
    """What a finding is about, for code to decide by: its kind and its exact name.

    A variable's name is the variable's, a setting's its dotted key, a file's its path, a device's its index.
    Two findings of one rule about one subject are the same fault. `detail` distinguishes subjects with the
    same name: an installed version, the argument of a call, the other file.
    """

    kind: SubjectKind
    name: str
    detail: str = ""


@dataclass(frozen=True)
class Rewrite:
    """A word of the command that starts training, and its replacement.

    `old` is the word after the shell's expansion, "" where a word is to be added; `new` is None for a word to
    remove. `at` is where the old word stands.
    """

    old: str
    new: str | None
    at: Location | None = None


@dataclass(frozen=True)
class Correction:
    """What the launch script would have to contain for a fault to be gone.

    `why` is the arithmetic, or what is known about the new value. `effect` is how it changes the training, ""
    for no effect: such a correction is safe. `code` is the rule's code. `others` are further corrections of
    the same fault, the next best first, and `fix` names the fix of such a one.
    """

    code: str
    rewrites: tuple[Rewrite, ...]
    why: str = ""
    effect: str = ""
    others: tuple[Correction, ...] = ()
    fix: str = ""


@dataclass(frozen=True)
class Finding:
    """One fault: stated in a sentence, proven by evidence, with the next step.

    `subject` is what it is about; fixes, renderers and judges decide by it and never read `message` or
    `evidence`. `severity` and `phase` (when it strikes) are the rule's own unless the finding has others.
    `fix` names the fix that would help. An error stops the paths of a job that `stops` names (for instance
    "async rollout"), all of them when that is empty or holds `EVERY_JOB`; a warning only may. `may_stop` are
    paths that cannot run under some setting. `also` are further places with the same root cause. `correction`
    is what to write into the launch script, where a rule can determine it.
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
    """Something that a rule examined but could not judge, and why: it is counted, and shown with -v.

    `paths` are the paths of a job that cannot be judged because of it; `EVERY_JOB` stands for all of them.
    """

    what: str
    why: str
    location: Location
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Example:
    """A case that is both a test and documentation: facts, and what the rule reports about them.

    `expect` is a part of the message of the only finding, or None for no finding.
    """

    name: str
    facts: tuple[Any, ...]
    expect: str | None = None


def family_of(code: str) -> str:
    """Return the letters of a code."""
    return code.rstrip("0123456789")


@dataclass(frozen=True)
class Check:
    """A rule: its judgement and everything that the engine and the documentation need to know about it."""

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
        """The cases that are both tests and documentation. They are built on first use."""
        return tuple(self.cases() if callable(self.cases) else self.cases)

    @property
    def named_examples(self) -> tuple[tuple[str, bool], ...]:
        """The name of each example, and whether the rule reports something in it.

        An index stores them without the facts.
        """
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
        return family_of(self.code)

    @property
    def documentation(self) -> str:
        """The docstring without its first line: Markdown headed *Why it matters* and *How to fix*."""
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

    `severity` is the severity of its findings, and `phase` is when they strike, unless a finding names its
    own. `requires` are codes that must have passed, or this rule is skipped: one root cause gives one red
    line. `applies` is a function of facts that returns why the rule is irrelevant here, or None when it is
    relevant. An `Unknown` that it returns has the same effect as if the rule had needed that fact. `paths` is
    a function of facts that returns the paths of a job that the rule judges, for instance "async rollout"; a
    finding names those it `stops`. `unjudged` is a function of facts that returns what the rule cannot judge.
    `examples` may be a function that returns them, so that start-up does not build the facts of all examples.

    Raises TypeError or ValueError at import when the declaration is wrong.
    """

    def declare(function: Callable[..., Iterator[Finding]]) -> Check:
        if not _CODE.fullmatch(code):
            raise ValueError(
                f"{function.__name__}: '{code}' is not a rule code (family letters and three digits)"
            )
        if not function.__doc__ and sys.flags.optimize < 2:  # -OO strips docstrings
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
