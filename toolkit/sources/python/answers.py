"""Answers to the question what a dotted name stands for.

The answer is `Present`, `Missing` or `Unresolved`. What cannot be followed is unresolved: it is never guessed.
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
    """Something of a package whose sources are not read."""

    dotted: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that is there, while what it is stays unknown: a compiled module, a name bound in two ways.

    `hidden`: not even whether it is there can be seen.
    """

    why: str
    hidden: bool = False


Definition = Module | Class | Function | Attribute | Variable | External | Opaque


@dataclass(frozen=True, slots=True)
class Present:
    """The name exists, and this is what it stands for."""

    definition: Definition


@dataclass(frozen=True, slots=True)
class Missing:
    """The name does not exist. `what` says whether a whole module is missing; `read_from` is the file that lacks it."""

    what: Literal["module", "name"]
    reason: str
    read_from: str


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Whether the name exists cannot be told from the sources."""

    reason: str


Answer = Present | Missing | Unresolved


class Lookup(Protocol):
    """What following a class needs of the sources that it lies in: `resolve.Sources` has it."""

    def module(self, name: str) -> Module | Opaque | None:
        """Return the summary of a module by its canonical name; None when there is no such module."""

    def file_of(self, name: str) -> ModuleFile | None:
        """Return where a module lies."""

    def names_for_annotations(self, module: Module, name: str) -> Answer:
        """Return what a name stands for in an annotation."""

    def member(self, definition: Definition, name: str) -> Answer:
        """Return what a definition has under a name."""
