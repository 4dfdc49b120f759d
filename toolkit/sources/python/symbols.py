"""Definitions of a module as a small summary, so that the syntax tree can be discarded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["function", "method", "classmethod", "staticmethod", "property"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function. `kind` is how it may be given."""

    name: str
    kind: Literal["positional", "either", "keyword"]
    required: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters, and whether there are `*args` and `**kwargs` as well."""

    parameters: tuple[Parameter, ...] = ()
    more_positional: bool = False
    more_keywords: bool = False

    def without_first(self) -> Signature:
        """Return the signature of a bound method."""
        if not self.parameters:
            return self
        return Signature(self.parameters[1:], self.more_positional, self.more_keywords)


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method. `signature` is None when an unknown decorator may have changed it.

    `returns` is the annotation's text; "Self" also stands for a class method that returns `cls(...)`. `makes`
    is set for a function that turns a class into a dataclass (PEP 681): whether that rejects keywords that
    are not fields. `passes_on` is set for an `__init__` whose `**kwargs` go only to `super().__init__`: how
    many positional arguments and which keywords that receives.
    """

    name: str
    module: str
    line: int
    role: Role
    signature: Signature | None
    returns: str = ""
    is_async: bool = False
    abstract: bool = False
    makes: Literal["", "strict", "lenient"] = ""
    passes_on: tuple[int, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Attribute:
    """A class attribute, a field, or something that a method stores on `self`.

    `field` is whether a dataclass decorator would see it, `required` whether it has no default. `made_by` is
    the dotted name of what is called for every value that methods store, if there is only one such name.
    """

    name: str
    module: str
    line: int
    annotation: str = ""
    field: Literal["", "either", "keyword"] = ""
    required: bool = False
    made_by: str = ""


@dataclass(frozen=True, slots=True)
class Class:
    """A class. `open` is why it may have more members than are listed; empty when it may not.

    `metaclass` is the text that names its own metaclass, whose members the class has as well; "" for none,
    "?" for another expression.
    """

    name: str
    module: str
    line: int
    bases: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    members: Mapping[str, Function | Attribute | Class] = field(default_factory=dict)
    open: str = ""
    metaclass: str = ""

    @property
    def dotted(self) -> str:
        """The full name."""
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Alias:
    """A name bound by an import, or assigned another dotted name."""

    target: str
    line: int
    module_only: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """Any other name of a module. `made_by` is the dotted name of the call that creates it, if any."""

    name: str
    module: str
    line: int
    annotation: str = ""
    made_by: str = ""


Binding = Function | Class | Alias | Variable


@dataclass(frozen=True, slots=True)
class Lazy:
    """The names that a module serves without binding them, with the text that names their source.

    `complete`: and no others.

    `computed` are packages below it (`""` for itself) whose files' exports it also serves.
    """

    table: Mapping[str, str]
    complete: bool
    computed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """The names that a module binds.

    `typing_names` are for type checkers only; `open` is why there may be more.

    `made` are patterns of the modules that it creates at run time: they have no file.
    """

    name: str
    path: str
    is_package: bool
    names: Mapping[str, tuple[Binding, ...]] = field(default_factory=dict)
    typing_names: Mapping[str, tuple[Binding, ...]] = field(default_factory=dict)
    stars: tuple[str, ...] = ()
    exported: frozenset[str] | None = None
    lazy: Lazy | None = None
    open: str = ""
    made: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The package that relative imports of the module start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]
