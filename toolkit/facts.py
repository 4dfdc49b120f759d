"""Facts, which are observations without judgement, and the collectors that observe them.

A fact is a frozen dataclass that survives a round trip through JSON. A *local handle* (an open source tree,
an index) is collected in the same way but stays on this machine: rules over portable facts also work on
`check --facts`.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from verl_doctor.toolkit.deferred import imported

F = TypeVar("F")


UnknownKind = Literal[
    "", "no library", "no more processes", "no temporary folder", "not tried", "sound when isolated"
]
"""Why a fact is unavailable, where code depends on it.

no library: the library that provides it is not installed; no more processes: the machine can start no more
processes, or has no memory for them; no temporary folder: none is writable; not tried: it costs more than
this command may spend, such as a trial that only --deep runs; sound when isolated: the interpreter works
without the user's own settings and packages.
"""


@dataclass(frozen=True)
class Unknown:
    """A fact that is unavailable, and why. A rule that needs it is skipped, never passed.

    `reason` is a sentence for people; code decides by the class and by `kind`.
    """

    reason: str
    kind: UnknownKind = field(default="", kw_only=True)


@dataclass(frozen=True)
class Absent(Unknown):
    """The subject of the fact does not exist on this target: rules about it do not apply."""


@dataclass(frozen=True)
class Broken(Unknown):
    """The collector raised or ran out of time: rules that need the fact could not check.

    `error` is the class of the exception and `message` its text, both "" when nothing was raised.
    """

    trace: str = ""
    error: str = ""
    message: str = ""


class FactReference:
    """The class of a fact by its module and name (`key`), imported only when the class itself is needed."""

    __slots__ = ("_fact", "key")

    def __init__(self, key: str, fact: type | None = None) -> None:
        self.key = key
        self._fact = fact

    @staticmethod
    def of(fact: type | FactReference) -> FactReference:
        """Return the reference to a loaded class."""
        return fact if isinstance(fact, FactReference) else _reference(fact)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FactReference) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"<fact {self.key}>"

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.key.rpartition(":")[2].rpartition(".")[2]

    @property
    def fact(self) -> type:
        """The class."""
        if self._fact is None:
            module, _, path = self.key.partition(":")
            found: type = imported(module, path)
            self._fact = found
        return self._fact


@functools.lru_cache(maxsize=1024)
def _reference(fact: type) -> FactReference:
    return FactReference(f"{fact.__module__}:{fact.__qualname__}", fact)


@dataclass(frozen=True)
class Need:
    """One annotated parameter: the fact it requires, and whether it accepts an `Unknown`."""

    parameter: str
    reference: FactReference
    tolerant: bool

    @property
    def fact(self) -> type:
        """The class of the fact."""
        return self.reference.fact


def needs_of(function: Callable[..., Any], skip: tuple[type, ...] = ()) -> tuple[Need, ...]:
    """Read from a function's annotations which facts it requires.

    Parameters whose annotation is in `skip` are left to the caller. Raises TypeError, naming the function,
    when a parameter has no annotation or one that is no class: a misspelt fact must fail before a user meets
    it.
    """
    found = []
    for name in _parameters(function):
        members = _annotated(function, name)
        if members[0] in skip:
            continue
        wanted = [
            member for member in members if isinstance(member, type) and not issubclass(member, Unknown)
        ]
        if len(wanted) != 1:
            raise TypeError(
                f"{function.__module__}.{function.__name__}: parameter '{name}' must name one fact type"
            )
        found.append(Need(name, FactReference.of(wanted[0]), tolerant=len(members) > 1))
    return tuple(found)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters.

    They are read from its code; `inspect` takes ten times as long.
    """
    if isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__"):
        code = function.__code__
        if not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(inspect.signature(function).parameters)


def _annotated(function: Callable[..., Any], name: str) -> tuple[Any, ...]:
    """Return the members of one annotation, (None,) when there is none.

    Nearly all are class names. `typing` would compile each as a program, which takes a tenth of the time for
    loading all rules.
    """
    text = getattr(function, "__annotations__", {}).get(name)
    if isinstance(text, str):
        known = getattr(function, "__globals__", {})
        members = tuple(known.get(word) for word in text.split(" | "))
        if all(isinstance(member, type) for member in members):
            return members
    hint = typing.get_type_hints(function).get(name)
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


@dataclass(frozen=True)
class Collector:
    """A function that observes one type of fact, and its time limit.

    `kept`: the fact depends only on files, variables and the facts that it needs, never on anything that
    changes by itself.
    """

    reference: FactReference
    needs: tuple[Need, ...]
    collect: Callable[..., Any]
    timeout: float
    local: bool
    kept: bool = False

    @property
    def fact(self) -> type:
        """The class of the fact."""
        return self.reference.fact

    @property
    def name(self) -> str:
        """The fact's name in a facts file."""
        return self.reference.name


def collector(
    *, timeout: float = 10.0, local: bool = False, kept: bool = False
) -> Callable[[Callable[..., Any]], Collector]:
    """Declare a collector. Its return annotation names the fact, its parameters the facts that it requires.

    `timeout` is in seconds and covers this collector alone, not the facts that it requires. `local` marks a
    handle that cannot be stored in a facts file. `kept` means that the fact depends only on files, variables
    and the required facts: it is reused while none of them has changed (`engine.unchanged`). That excludes
    processes, memory, devices, the network, disk space and clocks.
    """

    def declare(function: Callable[..., Any]) -> Collector:
        returned = _annotated(function, "return")
        facts = [
            member for member in returned if isinstance(member, type) and not issubclass(member, Unknown)
        ]
        if len(facts) != 1:
            raise TypeError(
                f"{function.__module__}.{function.__name__} must return one fact type, or Unknown"
            )
        return Collector(FactReference.of(facts[0]), needs_of(function), function, timeout, local, kept)

    return declare


def arguments_from(needs: tuple[Need, ...], get: Callable[[type], Any]) -> dict[str, Any] | Unknown:
    """Build a call's keyword arguments from the facts that `get` returns.

    Otherwise, return the first `Unknown` that prevents the call.
    """
    arguments = {}
    for need in needs:
        answer = get(need.fact)
        if isinstance(answer, Unknown) and not need.tolerant:
            return answer
        arguments[need.parameter] = answer
    return arguments
