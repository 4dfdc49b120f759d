"""Classes across files: inherited members, a constructor's parameters, and what an annotation names."""

from __future__ import annotations

import ast
from abc import ABCMeta
from collections.abc import Iterator
from dataclasses import replace
from enum import EnumMeta
from typing import Literal

from verl_doctor.toolkit.sources.python.answers import Answer, External, Lookup, Missing, Present, Unresolved
from verl_doctor.toolkit.sources.python.source import (
    dotted,
    is_none,
    parse,
    parse_expression,
    read,
    text_of,
)
from verl_doctor.toolkit.sources.python.symbols import (
    Attribute,
    Class,
    Function,
    Module,
    Parameter,
    Signature,
)

# External bases that add nothing a user would read, or (enumerations) these names.
_ENUM = frozenset({"name", "value"})
_KNOWN_BASES: dict[str, frozenset[str]] = {
    "object": frozenset(),
    "abc.ABC": frozenset(),
    "typing.Generic": frozenset(),
    "typing.Protocol": frozenset(),
    "typing_extensions.Protocol": frozenset(),
    "msgspec.Struct": frozenset(),
    "enum.Enum": _ENUM,
    "enum.IntEnum": _ENUM | frozenset(dir(int)),
    "enum.Flag": _ENUM,
    "enum.IntFlag": _ENUM | frozenset(dir(int)),
    "int": frozenset(dir(int)),
    "str": frozenset(dir(str)),
    "type": frozenset(dir(type)),
    "abc.ABCMeta": frozenset(dir(ABCMeta)),
    "enum.EnumMeta": frozenset(dir(EnumMeta)),
    "enum.EnumType": frozenset(dir(EnumMeta)),
}
_CONSTRUCTS_NOTHING = frozenset(
    {"object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol"}
)
_ENUMERATIONS = frozenset({"enum.Enum", "enum.Flag", "enum.IntEnum", "enum.IntFlag", "enum.StrEnum"})
# Decorators of a class that add no attribute. vLLM's own `config` makes a pydantic dataclass.
_KEEP_MEMBERS = frozenset(
    {
        "dataclass",
        "dataclasses.dataclass",
        "pydantic.dataclasses.dataclass",
        "config",
        "final",
        "typing.final",
        "total_ordering",
        "functools.total_ordering",
        "runtime_checkable",
        "deprecated",
    }
)
# pydantic ignores keywords that are not fields, unless a configuration forbids them, which is not read here.
_DATACLASSES: dict[str, Literal["strict", "lenient"]] = {
    "dataclasses.dataclass": "strict",
    "pydantic.dataclasses.dataclass": "lenient",
}
_DEEPEST = 40


def member(sources: Lookup, owner: Class, name: str) -> Answer:
    """Look up `owner.name`. A class with an unreadable base or decorator may have any member."""
    reason = ""
    for part in mro(sources, owner):
        if isinstance(part, Class):
            if name in part.members:
                return Present(part.members[name])
            by_metaclass = _by_metaclass(sources, part, name)
            if isinstance(by_metaclass, Present):
                return by_metaclass
            unclear = by_metaclass.reason if isinstance(by_metaclass, Unresolved) else ""
            reason = reason or part.open or _unknown_decorator(part) or unclear
        elif isinstance(part, External) and part.dotted in _KNOWN_BASES:
            if name in _KNOWN_BASES[part.dotted]:
                return Present(External(f"{part.dotted}.{name}"))
        else:
            base_name = part.dotted if isinstance(part, External) else "one of its bases"
            reason = reason or f"{owner.name} inherits from {base_name}"
    if reason or (name.startswith("__") and name.endswith("__")) or hasattr(object, name):
        return Unresolved(reason or f"{name} is Python's own")
    return Missing("name", f"{owner.name} has no {name}", _path(sources, owner))


def _by_metaclass(sources: Lookup, owner: Class, name: str) -> Answer | None:
    """Look up a name in the metaclass that a class names itself; None without one or without the name."""
    if not owner.metaclass:
        return None
    match _base(sources, owner, owner.metaclass):
        case Class() as kind:
            return member(sources, kind, name)
        case External(dotted=text) if text in _KNOWN_BASES:
            return Present(External(f"{text}.{name}")) if name in _KNOWN_BASES[text] else None
    return Unresolved(f"{owner.name} has the metaclass {owner.metaclass}")


def mro(sources: Lookup, owner: Class) -> Iterator[Class | External | None]:
    """Yield the class and its bases, depth first, each once. None stands for a base that cannot be found."""
    seen: set[str] = set()
    waiting: list[Class | External | None] = [owner]
    while waiting:
        part = waiting.pop(0)
        key = part.dotted if part is not None else ""
        if key in seen:
            continue
        seen.add(key)
        yield part
        if len(seen) > _DEEPEST:
            yield None
            return
        if isinstance(part, Class):
            waiting[:0] = [_base(sources, part, text) for text in part.bases]


def _base(sources: Lookup, owner: Class, text: str) -> Class | External | None:
    module = sources.module(owner.module)
    if not text or not isinstance(module, Module):
        return None
    answer = named(sources, module, text)
    if isinstance(answer, Present) and isinstance(answer.definition, (Class, External)):
        return answer.definition
    return External(text) if text in _KNOWN_BASES else None


def has_enum_members(sources: Lookup, owner: Class) -> bool:
    """Return whether a class is certainly an enumeration with members, which no class may extend."""
    parts = list(mro(sources, owner))
    if not any(isinstance(part, External) and part.dotted in _ENUMERATIONS for part in parts):
        return False
    return any(isinstance(part, Class) and any(_members(sources, part)) for part in parts)


def _members(sources: Lookup, owner: Class) -> Iterator[str]:
    """Yield the members that the body of an enumeration certainly defines."""
    file = sources.file_of(owner.module)
    tree = parse(text, file.path) if file is not None and isinstance(text := read(file.path), bytes) else None
    for node in tree.body if isinstance(tree, ast.Module) else ():
        if isinstance(node, ast.ClassDef) and node.name == owner.name and node.lineno == owner.line:
            for part in node.body:
                match part:
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() | ast.Tuple()) if (
                        not name.startswith("_")
                    ):
                        yield name
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=function, args=[])) if (
                        not name.startswith("_") and dotted(function).rpartition(".")[2] == "auto"
                    ):
                        yield name


def named(sources: Lookup, module: Module, text: str) -> Answer:
    """Return what a dotted text refers to inside a module, for a type checker."""
    head, *rest = text.split(".")
    answer = sources.names_for_annotations(module, head)
    for part in rest:
        if not isinstance(answer, Present):
            break
        answer = sources.member(answer.definition, part)
    return answer


def annotated(sources: Lookup, module: Module, text: str, owner: Class | None = None) -> Class | None:
    """Return the single class that an annotation names; optional ones count, unions of several do not."""
    node = parse_expression(text) if text else None
    for name in [_single(node)]:
        if name in {"Self", "typing.Self", "typing_extensions.Self"}:
            return owner
        if name:
            answer = named(sources, module, name)
            if isinstance(answer, Present) and isinstance(answer.definition, Class):
                return answer.definition
    return None


def class_held(text: str) -> str:
    """Return the annotation of the class that `type[Kind]` stands for; "" for any other annotation."""
    match parse_expression(text) if text else None:
        case ast.Subscript(value=outer, slice=inner) if dotted(outer).rpartition(".")[2] in {"type", "Type"}:
            return text_of(inner, 400)
    return ""


def _single(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return _single(parse_expression(text))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            names = [_single(side) for side in (left, right) if not is_none(side)]
            return names[0] if len(names) == 1 else ""
        case ast.Subscript(value=value, slice=inner):
            kind = dotted(value).rpartition(".")[2]
            if kind == "Optional":
                return _single(inner)
            if kind == "Annotated" and isinstance(inner, ast.Tuple) and inner.elts:
                return _single(inner.elts[0])
            if kind == "Union" and isinstance(inner, ast.Tuple):
                names = [_single(side) for side in inner.elts if not is_none(side)]
                return names[0] if len(names) == 1 else ""
            return ""
    return dotted(node)


def constructor(sources: Lookup, owner: Class) -> tuple[Signature, str] | None:
    """Return what `owner(...)` accepts and the file that defines it, or None when undetermined."""
    parts = list(mro(sources, owner))
    if owner.keywords and set(owner.keywords) - {"omit_defaults", "dict", "array_like", "kw_only"}:
        return None
    if any(
        isinstance(part, Class) and ("__new__" in part.members or (part.keywords and part is not owner))
        for part in parts
    ):
        return None
    return _constructor(sources, owner, parts)


def _constructor(
    sources: Lookup, owner: Class, parts: list[Class | External | None]
) -> tuple[Signature, str] | None:
    """Return what the first of these classes that defines it accepts."""
    for index, part in enumerate(parts):
        if not isinstance(part, Class):
            if isinstance(part, External) and part.dotted == "msgspec.Struct":
                return _from_fields(parts, struct=True), _path(sources, owner)
            if part is None or part.dotted not in _CONSTRUCTS_NOTHING:
                return None
            continue
        if (made := part.members.get("__init__")) is not None:
            if not isinstance(made, Function) or made.signature is None:
                return None
            own = made.signature.without_first()
            chain = all(isinstance(below, Class) and len(below.bases) < 2 for below in parts[: index + 1])
            if made.passes_on is not None and chain:
                above = _constructor(sources, owner, parts[index + 1 :])
                own = _with_what_is_passed_on(own, *made.passes_on, above[0]) if above else own
            return own, _path(sources, part)
        if made_by := _dataclass(sources, part):
            signature = _from_fields(parts, struct=False, sources=sources)
            if made_by == "lenient":
                signature = replace(signature, more_keywords=True)
            return signature, _path(sources, part)
        if part.decorators:
            return None
    return Signature(), _path(sources, owner)


def _with_what_is_passed_on(
    own: Signature, places: int, named: tuple[str, ...], above: Signature
) -> Signature:
    """Return the parameters of an `__init__` and those that its `**kwargs` reach in the inherited one."""
    taken = {parameter.name for parameter in own.parameters} | set(named)
    reached = tuple(
        replace(parameter, kind="keyword")
        for parameter in above.parameters[places:]
        if parameter.kind != "positional" and parameter.name not in taken
    )
    return replace(own, parameters=(*own.parameters, *reached), more_keywords=above.more_keywords)


def _from_fields(
    parts: list[Class | External | None], *, struct: bool, sources: Lookup | None = None
) -> Signature:
    """Return the `__init__` that a dataclass decorator or msgspec generates: fields of the bases first."""
    fields: dict[str, Parameter] = {}
    open_ended = False
    for part in reversed(parts):
        if isinstance(part, Class):
            is_dataclass = sources is None or _dataclass(sources, part)
            for name, entry in part.members.items():
                if (struct or is_dataclass) and isinstance(entry, Attribute) and entry.field:
                    fields[name] = Parameter(name, entry.field, entry.required)
        elif part is None or part.dotted not in _KNOWN_BASES:
            open_ended = True
    ordered = sorted(fields.values(), key=lambda field: field.kind == "keyword")
    return Signature(tuple(ordered), more_positional=open_ended, more_keywords=open_ended)


def _dataclass(sources: Lookup, owner: Class) -> Literal["", "strict", "lenient"]:
    """Return whether a decorator makes the class a dataclass, and whether it rejects unknown keywords.

    Unknown keywords are those that are not fields.
    """
    module = sources.module(owner.module)
    if not isinstance(module, Module):
        return ""
    for text in owner.decorators:
        match named(sources, module, text):
            case Present(definition=External(dotted=name)) if name in _DATACLASSES:
                return _DATACLASSES[name]
            case Present(definition=Function(makes=made)) if made:
                return made
    return ""


def _unknown_decorator(owner: Class) -> str:
    unknown = [name for name in owner.decorators if name not in _KEEP_MEMBERS]
    return f"{owner.name} is decorated with {unknown[0] or 'an expression'}" if unknown else ""


def _path(sources: Lookup, owner: Class) -> str:
    file = sources.file_of(owner.module)
    return str(file.path) if file else ""
