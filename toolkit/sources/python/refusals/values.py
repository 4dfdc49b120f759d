"""What followed code computes with.

Plain values, parts of the configuration, objects made from them, and torch's dtypes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from verl_doctor.toolkit.sources.python.definitions import ClassNode
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.source import dotted

PLAIN = (type(None), bool, int, float, str, list, tuple, set, dict)
NOT_ITERABLE = (type(None), bool, int, float)
NO_MAPPING = (*NOT_ITERABLE, str, list, tuple, set)
SETTERS = ("setattr", "object.__setattr__")
_BUILT_IN_TYPES = frozenset({"str", "int", "float", "bool", "list", "tuple", "set", "dict", "bytes"})
_DTYPES = frozenset(
    {"bool", "uint8", "int8", "int16", "int32", "int64", "half", "float", "double", "bfloat16"}
    | {f"float{bits}" for bits in (16, 32, 64)}
)

_ALIASES = {"half": "float16", "float": "float32", "double": "float64"}


@dataclass(frozen=True)
class Dtype:
    """One of torch's types of numbers, which is equal to itself alone."""

    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"


def dtype(name: str) -> Dtype | None:
    """Return the type of numbers that torch has by this name."""
    return Dtype(_ALIASES.get(name, name)) if name in _DTYPES else None


@dataclass(frozen=True)
class Section:
    """A part of the configuration, by its dotted key; "" is all of it."""

    key: str

    def child(self, name: object) -> str:
        """Return the dotted key of a name in it."""
        return f"{self.key}.{name}" if self.key else str(name)


@dataclass(eq=False)
class Made:
    """An object made from a section: `fields` by name, `keys` with the source of each."""

    owner: ClassNode
    fields: dict[str, Any]
    keys: dict[str, str] = field(default_factory=dict)


@dataclass
class Frame:
    """The names in one call of a function: their values, and the keys that each was made from."""

    module: str
    names: dict[str, Any]
    owner: ClassNode | None = None
    bound: Any = None
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)


def is_plain(value: Any) -> bool:
    """Return whether a value is completely known."""
    if isinstance(value, (list, tuple, set)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    return isinstance(value, (*PLAIN, range, Dtype))


def is_instance(value: Any, types: ast.expr) -> Any:
    """Return whether a plain value of the configuration has one of these types.

    Lists and sections have OmegaConf's own types.
    """
    names = list(_names_of(types))
    if type(value) not in (type(None), bool, int, float, str) or not _BUILT_IN_TYPES.issuperset(names):
        return UNCLEAR
    return any(base.__name__ in names for base in type(value).__mro__)


def _names_of(types: ast.expr) -> Iterator[str]:
    """Yield the names of types in `int`, `(int, str)` and `int | str`."""
    match types:
        case ast.Tuple(elts=parts):
            yield from chain.from_iterable(map(_names_of, parts))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _names_of(left)
            yield from _names_of(right)
        case _:
            yield dotted(types)


def set_by(call: ast.Call) -> frozenset[str] | None:
    """Return the name of the one attribute that `setattr` changes; None for other calls, or if unknown."""
    match call.args:
        case [_, ast.Constant(value=str(name)), *_] if dotted(call.func) in SETTERS:
            return frozenset({name})
    return None


def blur(made: Made, names: frozenset[str] | None = None) -> None:
    """Forget an object's fields, or those with these names, after code that was not followed.

    Sections stay unchanged.
    """
    for name, value in made.fields.items():
        if names is not None and name not in names:
            if isinstance(value, Made):
                blur(value, names)
        elif not isinstance(value, Section):
            made.fields[name] = UNCLEAR


def forget_all(changed: Any, names: dict[str, Any]) -> None:
    """Forget the values that are this object or contain it, whatever their names."""
    for name, value in names.items():
        if isinstance(value, Made):
            forget_all(changed, value.fields)
        elif _contains(value, changed):
            names[name] = UNCLEAR


def _contains(value: Any, part: Any) -> bool:
    if value is part:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return any(_contains(each, part) for each in inner)
