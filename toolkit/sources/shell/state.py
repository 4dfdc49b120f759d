"""What a running shell changes, and a subshell changes for itself alone.

Variables, options, functions, the folder, the environment.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from verl_doctor.toolkit.sources.shell.syntax import Node, Written

OPTIONS = {"e": "errexit", "u": "nounset", "a": "allexport", "f": "noglob"}
"""The names of options of `set` by their letters."""

_MOST_TEXTS = 16


@dataclass(frozen=True)
class Either:
    """The text of a variable that depends on an undecided condition: one of `texts`."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """A variable that stands for another (`declare -n`)."""

    name: str


class Element(str):
    """An element of an array or an argument of a function, and where it is written, not where it is used.

    `written` is the word in the script, "" if that becomes several. `conditional`: it exists only under a
    condition.
    """

    __slots__ = ("conditional", "line", "path", "written")
    path: str
    line: int
    written: str
    conditional: bool

    def __new__(  # noqa: PYI034 - `Self` is not in Python 3.10
        cls, text: str, path: str = "", line: int = 0, written: str = "", *, conditional: bool = False
    ) -> Element:
        """Return the element, keeping what is known of an existing one."""
        self = super().__new__(cls, text)
        known = text if isinstance(text, Element) else None
        self.path, self.line, self.written = path, line, written
        if known and known.line:
            self.path, self.line, self.written = known.path, known.line, known.written
        self.conditional = conditional or (known is not None and known.conditional)
        return self


class Array(list[str | None]):
    """An array whose elements were each written as one word: `words` are these, `path` is their file."""

    def __init__(self, values: Iterable[str | None], words: Sequence[Written], path: str) -> None:
        super().__init__(values)
        self.words = tuple(words)
        self.path = path


class Unset:
    """The value of an unset variable."""


UNSET = Unset()
Value = str | list[str | None] | Either | None
Stored = Value | Unset | Reference
Functions = dict[str, tuple[str, tuple[tuple[Node, ...], ...]]]


@dataclass(frozen=True)
class EnvironmentChange:
    """A variable that is exported, or unset (`removed`). `conditional`: under an undecided condition."""

    name: str
    value: str | None
    path: str
    line: int
    removed: bool = False
    conditional: bool = False


@dataclass(frozen=True)
class Local:
    """What a variable was before a function made it its own.

    None: undecided; for `value`, not set by the script either.
    """

    value: Stored
    exported: bool | None
    attributes: str | None


_UNDECIDED = Local(None, None, None)


@dataclass
class ShellState:
    """The state of one shell at one place of a script. A subshell has a copy, which is lost with it.

    `variables` hides `environ`; a value of None is set but unknown. `arguments` are `$1`, `$2`...; not
    `called`: there may be others; `cwd` is "" if unknown. `exported` and `options` have True, False, or None
    where a condition decides; a variable of the environment is exported unless listed. `attributes` are
    letters of `declare`: `i`, `l`, `r`, `u`; None if undecided. `functions` have several bodies if a
    condition decides. `changes` are the changes to the environment, `limits` the words of each `ulimit` that
    is certain to run. `locals` has what the variables of each function that is running hide. `status` is
    whether the last command succeeded, None if undetermined. `forgotten`: any variable may be set to
    anything, unless listed. `ended`: the commands that follow do not run.
    """

    environ: Mapping[str, str] = field(default_factory=dict)
    variables: dict[str, Stored] = field(default_factory=dict)
    arguments: list[str | None] = field(default_factory=list)
    called: bool = True
    cwd: str = ""
    exported: dict[str, bool | None] = field(default_factory=dict)
    attributes: dict[str, str | None] = field(default_factory=dict)
    options: dict[str, bool | None] = field(default_factory=dict)
    functions: Functions = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)
    unexpanded: set[str] = field(default_factory=set)
    changes: list[EnvironmentChange] = field(default_factory=list)
    limits: list[tuple[str, ...]] = field(default_factory=list)
    locals: list[dict[str, Local]] = field(default_factory=list)
    status: bool | None = None
    fails: str = field(default="", compare=False)
    forgotten: bool = False
    ended: bool = False

    @property
    def size(self) -> int:
        """The number of entries that a copy has."""
        return len(self.variables) + len(self.exported) + len(self.functions) + len(self.changes)

    def copy(self) -> ShellState:
        """Return a state that changes independently."""
        own = copy.copy(self)
        for part in fields(self):
            if isinstance(value := getattr(self, part.name), (list, dict, set)):
                setattr(own, part.name, value if value is self.environ else copy.copy(value))
        return own

    def option(self, name: str) -> bool | None:
        """Return whether an option of `set` or `shopt` is on; None if a condition decides."""
        return self.options.get(name, False)

    def value(self, name: str) -> Value | Unset:
        """Return the value of a variable."""
        target = self.resolved(name)
        found = None if target is None else self.stored(target)
        return None if isinstance(found, Reference) else found

    def stored(self, name: str) -> Stored:
        """Return the value of a variable, or the reference that it is."""
        return self.variables.get(name, None if self.forgotten else self.environ.get(name, UNSET))

    def exports(self, name: str) -> bool | None:
        """Return whether programs inherit a variable; None if a condition decides."""
        return self.exported.get(name, name in self.environ)

    def resolved(self, name: str) -> str | None:
        """Return the variable that a name leads to through references; None if they go round in a circle."""
        for _ in range(8):
            target = self.variables.get(name)
            if not isinstance(target, Reference):
                return name
            name = target.name
        return None

    def widened(self, other: ShellState) -> ShellState:
        """Return what both agree on, with every other variable unknown.

        This is the state at the start of any round of a loop.
        """
        merged = agreed([self, other])
        for name, value in merged.variables.items():
            if value != self.stored(name):
                merged.variables[name] = None
        merged.changes, merged.status = list(self.changes), self.status
        return merged


def agreed(ends: Sequence[ShellState]) -> ShellState:
    """Return the state after one of several ways was taken.

    What they agree on is known, the rest undecided or unknown.
    """
    first = ends[0]
    if len(ends) == 1:
        return first
    folders = {end.cwd for end in ends}
    return ShellState(
        environ=first.environ,
        variables=_merged(
            [end.variables for end in ends], lambda name: first.environ.get(name, UNSET), _either
        ),
        arguments=_arguments([end.arguments for end in ends]),
        called=all(end.called for end in ends),
        cwd=folders.pop() if len(folders) == 1 else "",
        exported=_merged([end.exported for end in ends], lambda name: name in first.environ, _undecided),
        attributes=_merged([end.attributes for end in ends], lambda _: "", _undecided),
        options=_merged([end.options for end in ends], lambda _: False, _undecided),
        functions=_merged([end.functions for end in ends], lambda _: ("", ((),)), _all_bodies),
        aliases=set[str]().union(*(end.aliases for end in ends)),
        unexpanded=set.intersection(*(end.unexpanded for end in ends)),
        changes=_changes([end.changes for end in ends]),
        limits=_common_beginning([end.limits for end in ends]),
        locals=[
            _merged(frames, lambda _: _UNDECIDED, lambda _: _UNDECIDED)
            for frames in zip(*(end.locals for end in ends), strict=False)
        ],
        forgotten=any(end.forgotten for end in ends),
        status=first.status if all(end.status is first.status for end in ends) else None,
    )


_V = TypeVar("_V")


def _merged(
    ways: Sequence[Mapping[str, _V]], default: Callable[[str], _V], differing: Callable[[Sequence[_V]], _V]
) -> dict[str, _V]:
    """Merge by name. A name that some do not have has its default there."""
    merged: dict[str, _V] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(ways)):
        values = [way.get(name, default(name)) for way in ways]
        same = all(value is values[0] or value == values[0] for value in values)
        merged[name] = values[0] if same else differing(values)
    return merged


def _undecided(_: object) -> None:
    return None


def _either(values: Sequence[Stored]) -> Stored:
    """Return the possible texts; None when one is unknown, or when there are many."""
    arrays = [value for value in values if isinstance(value, list)]
    if len(arrays) == len(values):
        return united(arrays)
    texts: list[str] = []
    for value in values:
        if value is None or isinstance(value, (list, Reference)):
            return None
        texts += value.texts if isinstance(value, Either) else ["" if isinstance(value, Unset) else value]
    different = tuple(dict.fromkeys(texts))
    return Either(different) if len(different) <= _MOST_TEXTS else None


def _arguments(ways: Sequence[list[str | None]]) -> list[str | None]:
    same = all(way == ways[0] for way in ways)
    return ways[0] if same else [None] * max(map(len, ways))


def _all_bodies(
    values: Sequence[tuple[str, tuple[tuple[Node, ...], ...]]],
) -> tuple[str, tuple[tuple[Node, ...], ...]]:
    """Return a function with every body that it may have; one without commands where it may be undefined."""
    bodies = dict.fromkeys(body for _, bodies in values for body in bodies)
    return next(path for path, _ in values if path), tuple(bodies)


def _changes(ways: Sequence[list[EnvironmentChange]]) -> list[EnvironmentChange]:
    """Return the common changes, then those of each way, which are conditional."""
    common = _common_beginning(ways)
    rest = dict.fromkeys(entry for way in ways for entry in way[len(common) :])
    return [*common, *(replace(entry, conditional=True) for entry in rest)]


def _common_beginning(ways: Sequence[Sequence[_V]]) -> list[_V]:
    same = itertools.takewhile(
        lambda values: all(value == values[0] for value in values), zip(*ways, strict=False)
    )
    return [values[0] for values in same]


def united(arrays: Sequence[Sequence[str | None]]) -> list[str | None]:
    """Return the prefix that all have in common, then what follows it in either."""
    common = _common_beginning(arrays)
    rest = [item for array in arrays for item in array[len(common) :]]
    return [
        *common,
        *(None if item is None else Element(item, conditional=True) for item in dict.fromkeys(rest)),
    ]
