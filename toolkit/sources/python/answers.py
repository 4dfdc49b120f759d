"""Results of looking up what a dotted name refers to.

A result is `Present`, `Missing` or `Unresolved`. What cannot be followed is unresolved, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from verl_doctor.toolkit.sources.python.source import ModuleFile
from verl_doctor.toolkit.sources.python.symbols import (
    Attribute,
    Class,
    Function,
    Module,
    Variable,
)


@dataclass(frozen=True, slots=True)
class External:
    """Something in a package whose sources are not read."""

    dotted: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that exists but is unknown: a compiled module, a name bound in two ways.

    `hidden`: not even its existence can be determined.
    """

    why: str
    hidden: bool = False


Definition = Module | Class | Function | Attribute | Variable | External | Opaque


@dataclass(frozen=True, slots=True)
class Present:
    """The name exists; this is its definition."""

    definition: Definition


@dataclass(frozen=True, slots=True)
class Missing:
    """The name does not exist.

    `what` states whether a whole module is missing; `read_from` is the file that lacks the name.
    """

    what: Literal["module", "name"]
    reason: str
    read_from: str


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Whether the name exists cannot be determined from the sources."""

    reason: str


Answer = Present | Missing | Unresolved


class Lookup(Protocol):
    """The look-ups that following a class requires; implemented by `resolve.Sources`."""

    def module(self, name: str) -> Module | Opaque | None:
        """Return the summary of a module by its canonical name; None when it does not exist."""

    def file_of(self, name: str) -> ModuleFile | None:
        """Return the file of a module."""

    def names_for_annotations(self, module: Module, name: str) -> Answer:
        """Return what a name refers to in an annotation."""

    def member(self, definition: Definition, name: str) -> Answer:
        """Return a definition's member of this name."""
