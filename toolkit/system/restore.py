"""Restores dataclasses from JSON, and checks the types.

For facts it replaces dacite, which restores the few records of a journal: the reader of each type is built
once and then restores a fact 20 times as fast, which matters with a thousand nodes.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, cast

T = TypeVar("T")
_Reader = Callable[[Any], Any]
# COMPATIBILITY: former field names, as in files of verl-doctor 0.1.0.
_FORMER_NAMES: Mapping[str, Mapping[str, str]] = {
    "CacheFolder": {"set_by": "told_by"},
    "Configuration": {"overrides": "asked"},
    "CudaAnswer": {"error": "said"},
    "CudaToolkit": {
        "given_by": "told_by",
        "compiler_given_by": "compiler_told_by",
        "cxx_given_by": "cxx_told_by",
    },
    "EngineRay": {"address_given": "told"},
    "EngineReach": {"passed_by": "told_by", "given_by": "said_by"},
    "Head": {"given_by": "said_by"},
    "JobNodes": {"given_by": "said_by"},
    "JobVariables": {"undetermined": "untold"},
    "Knock": {"error": "said"},
    "LeftFile": {"undetermined": "untold"},
    "Limits": {"ray_cpus": "told"},
    "ModelStorage": {"undetermined": "untold"},
    "OwnFile": {"error": "said"},
    "Place": {"error": "said", "given_by": "said_by"},
    "RayCluster": {"undetermined": "untold"},
    "ScriptError": {"message": "said"},
    "Trial": {"messages": "said"},
    "TritonKernel": {"error": "said"},
    "Value": {"undetermined": "untold"},
    "VllmPlatform": {"evidence": "told_by"},
}


def restored(kind: type[T], value: Any) -> T:
    """Return an instance of a dataclass. Unknown keys are ignored; missing ones get their default.

    Raises TypeError, naming the expected type, if the value does not match, and RecursionError if it is too
    deep.
    """
    reader: _Reader = _reader(cast("Any", kind))
    return cast("T", reader(value))


@functools.cache
def _reader(hint: Any) -> _Reader:
    if hint is Any:
        return _unchanged
    if dataclasses.is_dataclass(hint):
        return _of_dataclass(cast("type", hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return _one_of(arguments)
    if origin in (Union, types.UnionType):
        return _first_of(tuple(map(_reader, arguments)), hint)
    if origin is tuple and arguments[-1:] == (...,):
        return _tuple_of(_reader(arguments[0]))
    if origin is tuple:
        return _fixed_tuple(tuple(map(_reader, arguments)))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader(arguments[0]), _reader(arguments[1]))
    if isinstance(hint, type):
        return _instance(hint)
    raise TypeError(f"no reader for {hint}")


def _unchanged(value: Any) -> Any:
    return value


def _instance(hint: type) -> _Reader:
    kind = (int, float) if hint is float else hint

    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise _mismatch(hint.__name__, value)

    return read


def _one_of(known: tuple[Any, ...]) -> _Reader:
    def read(value: Any) -> Any:
        if value in known:
            return value
        raise _mismatch(f"one of {known}", value)

    return read


def _first_of(readers: tuple[_Reader, ...], hint: Any) -> _Reader:
    def read(value: Any) -> Any:
        for reader in readers:
            try:
                return reader(value)
            except TypeError:  # noqa: PERF203 - a union has two or three members
                continue
        raise _mismatch(str(hint), value)

    return read


def _tuple_of(item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(map(item, value))
        raise _mismatch("a list", value)

    return read


def _fixed_tuple(items: tuple[_Reader, ...]) -> _Reader:
    def read(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and len(value) == len(items):
            return tuple(item(inner) for item, inner in zip(items, value, strict=True))
        raise _mismatch(f"a list of {len(items)}", value)

    return read


def _mapping(key: _Reader, item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key(name): item(inner) for name, inner in value.items()}
        raise _mismatch("an object", value)

    return read


def _of_dataclass(kind: type) -> _Reader:
    fields = [field for field in dataclasses.fields(kind) if field.init]
    former = _FORMER_NAMES.get(kind.__name__, {})
    missing = dataclasses.MISSING
    needed = [field.name for field in fields if field.default is missing and field.default_factory is missing]
    readers: dict[
        str, _Reader
    ] = {}  # built on first use, because a dataclass may contain others of its own type

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _mismatch(f"a {kind.__name__}", value)
        if not readers:
            hints = typing.get_type_hints(kind)
            readers.update({field.name: _reader(hints[field.name]) for field in fields})
        values = {name: reader(value[name]) for name, reader in readers.items() if name in value}
        for name, old in former.items():
            if old in value and name not in value:
                values[name] = readers[name](value[old])
        if lacking := [name for name in needed if name not in values]:
            raise TypeError(f"a {kind.__name__} has {', '.join(lacking)}, which this value lacks")
        return kind(**values)

    return read


def _mismatch(expected: str, value: Any) -> TypeError:
    return TypeError(f"{expected} was expected, not {value!r:.60}")
