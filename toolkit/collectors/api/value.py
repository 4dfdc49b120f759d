"""The values that an expression may stand for, and the names of a scope."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from packaging.version import Version

from verl_doctor.toolkit.sources.python.answers import Answer, Definition
from verl_doctor.toolkit.sources.python.symbols import Class, Function, Module


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a class."""

    of: Class


@dataclass(frozen=True, slots=True)
class Bound:
    """A method reached through its class (`Class.method`) or through an instance."""

    function: Function
    owner: Class
    through_instance: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """A collection of parameter or field names, built for tests like `"name" in ...`."""

    names: frozenset[str]
    complete: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The result of `re.match(pattern, version)`, read by `.group(1)`: a version, perhaps without suffix.

    verl extracts numbers from a version to compare releases (on ROCm, where it ends in "+rocm624"). None of
    its comparisons distinguishes the two, so this stands for the version itself.
    """

    version: str


@dataclass(slots=True, eq=False)
class LocalClass:
    """A class of the examined module: what its methods store on `self`, each with the scope of the method.

    `home` returns the scope of a method.
    """

    node: ast.ClassDef
    home: Callable[[ast.FunctionDef | ast.AsyncFunctionDef], Scope] | None = None
    stored: dict[str, list[tuple[ast.expr | None, str, Scope]]] = field(default_factory=dict)
    bases: tuple[LocalClass, ...] = ()


@dataclass(frozen=True, slots=True)
class SelfOf:
    """The first parameter of a method."""

    local: LocalClass


class Gone:
    """The type of `GONE`."""


class Nothing:
    """The type of `NOTHING`."""


GONE: Final = Gone()
NOTHING: Final = Nothing()
"""Python's None, where it is certain."""
Value = Definition | Instance | Bound | Probe | Found | SelfOf | str | Version | Gone | Nothing | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One way a scope binds a name: by an expression, an annotation's text, an import, or something else.

    `loop` is target and subject of the loop that binds it.
    """

    expression: ast.expr | None = None
    annotation: str = ""
    answer: Callable[[], Answer] | None = None
    value: Value = None
    origin: tuple[str, str] = ("", "")
    loop: tuple[ast.expr, ast.expr] | None = None
    parameter: bool = False


@dataclass(slots=True, eq=False)
class Scope:
    """The names of a function or a module.

    `body` are its statements, `changed` the names that its functions declare global.
    """

    parent: Scope | None
    names: dict[str, list[Entry]] = field(default_factory=dict)
    body: list[ast.stmt] | None = None
    changed: frozenset[str] = frozenset()

    def bind(self, name: str, entry: Entry) -> None:
        """Add one way in which the name is bound."""
        self.names.setdefault(name, []).append(entry)

    def find(self, name: str) -> tuple[Scope, list[Entry]] | None:
        """Return the innermost scope that binds the name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope, scope.names[name]
            scope = scope.parent
        return None


def describe(value: Value) -> str:
    """Return the dotted name of an object, or of the class of an instance."""
    match value:
        case Instance(of=kind):
            return kind.dotted
        case Class():
            return value.dotted
        case Module(name=name):
            return name
        case Function(module=module, name=name):
            return f"{module}.{name}"
        case Bound(function=function, owner=owner):
            return f"{owner.dotted}.{function.name}"
    return ""
