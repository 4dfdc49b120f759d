"""The values that `python.follow` computes with.

A program's dictionaries, functions, classes and modules, as far as known.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR

Place = tuple[str, int]
"""A file and a line."""


class Table(dict[str, Any]):
    """A dictionary of the program.

    `places` is where each entry was written; an `open` one may have other entries.

    `level` is the number of unclear conditions around its creation: only changes under more of them are weak.
    """

    def __init__(self, content: Mapping[str, Any] | None = None) -> None:
        super().__init__(content or {})
        self.places: dict[str, Place] = dict(getattr(content, "places", {}))
        self.open: bool = getattr(content, "open", False)
        self.level = 0

    def put(self, key: str, value: Any, place: Place, *, weakly: bool = False) -> None:
        """Set an entry."""
        if weakly and not (key in self and same(self[key], value)):
            value = UNCLEAR
        self[key], self.places[key] = value, place

    def take(self, key: str, place: Place, *, weakly: bool = False) -> None:
        """Remove an entry."""
        if key in self and weakly:
            self.put(key, UNCLEAR, place)
        elif key in self:
            del self[key]
            self.places.pop(key, None)

    def add(self, other: Any, place: Place, *, weakly: bool = False) -> None:
        """Copy all entries of another; from an unclear value, unknown entries."""
        if not isinstance(other, Table):
            self.open = True
            return
        self.open = self.open or other.open
        for key, value in other.items():
            self.put(key, value, other.places.get(key, place), weakly=weakly)


@dataclass(frozen=True)
class Outside:
    """Something in another package, by its full name ("ray.init")."""

    name: str


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the tree, with the object that it is bound to."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    module: Module
    owner: Instance | None = None


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the tree."""

    node: ast.ClassDef
    module: Module


@dataclass(frozen=True, eq=False)
class Instance:
    """An object of a class of the tree; `kind` is where its methods are looked up first."""

    kind: Class


@dataclass(frozen=True, eq=False)
class Module:
    """A module that was run: its name, file and global names."""

    name: str
    path: Path
    names: dict[str, Any]


@dataclass(frozen=True)
class Link:
    """A name that an import binds, not yet resolved."""

    name: str


class SomeText:
    """A text that is unknown, but exists."""

    def __repr__(self) -> str:
        return "SOME_TEXT"


SOME_TEXT = SomeText()


def same(first: Any, other: Any) -> bool:
    """Return whether two values are known to be equal."""
    return UNCLEAR not in (first, other) and type(first) is type(other) and bool(first == other)


def tabled(value: Any, place: Place) -> Any:
    """Return a JSON or YAML value with dictionaries as `Table`."""
    if isinstance(value, Mapping):
        table = Table()
        for key, inner in value.items():
            table.put(str(key), tabled(inner, place), place)
        return table
    return [tabled(inner, place) for inner in value] if isinstance(value, (list, tuple)) else value


def entry_of(owner: Any, key: Any) -> Any:
    """Evaluate `owner[key]`."""
    if isinstance(owner, Table) and isinstance(key, str):
        return owner.get(key, UNCLEAR)
    if isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
        return owner[key]
    return UNCLEAR


def is_one_of(value: Any, kinds: list[Any]) -> Any:
    """Evaluate `isinstance` for known values of builtin types."""
    wanted = kinds[0] if kinds and isinstance(kinds[0], list) else kinds
    types = [_TYPES.get(kind.name) if isinstance(kind, Outside) else None for kind in wanted]
    known = value is None or isinstance(value, tuple(_TYPES.values()))
    return isinstance(value, tuple(filter(None, types))) if known and None not in types else UNCLEAR


def of_text(text: str, name: str, given: list[Any]) -> Any:
    """Evaluate a method of a text, if it has no side effects."""
    if UNCLEAR in given or name not in _TEXT:
        return UNCLEAR
    return tried(getattr(text, name), *given)


def tried(function: Callable[..., Any], *given: Any) -> Any:
    """Return the result of a builtin; unclear when it rejects its arguments."""
    try:
        return function(*given)
    except (TypeError, ValueError, RecursionError):
        return UNCLEAR


_TYPES = {f"builtins.{kind.__name__}": kind for kind in (str, int, bool, float, list, dict)}
_TEXT = frozenset(
    {
        "lower",
        "upper",
        "strip",
        "lstrip",
        "rstrip",
        "split",
        "startswith",
        "endswith",
        "join",
        "replace",
        "removeprefix",
    }
)
