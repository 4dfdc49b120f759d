"""The reference of the facts that plugins may use, and of the kinds of a finding's subject."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, get_args

from verl_doctor.toolkit import public_facts
from verl_doctor.toolkit.rule import WHEN, SubjectKind

_PATH = "reference/facts/index.md"
_WORD = re.compile(r"[A-Za-z_]\w*")


def pages() -> dict[str, str]:
    """The one page, by its path."""
    return {_PATH: "\n".join([*_page(), ""])}


def _page() -> Iterator[str]:
    facts = [getattr(public_facts, name) for name in sorted(public_facts.__all__)]
    yield "# Facts for plugins"
    yield ""
    yield (
        "A rule requests a fact by the type of a parameter: `def rule(launch: Launch) -> "
        "Iterator[Finding]`. Import the types from `verl_doctor.toolkit.public_facts`. If a fact could not "
        "be observed, the rule is skipped with the reason; a parameter of type `Launch | Unknown` receives "
        "the reason instead."
    )
    yield ""
    yield "A finding's `Subject` has one of these kinds: " + _listed(get_args(SubjectKind)) + "."
    yield f"Its `phase` is one of these: {_listed(WHEN)}."
    yield ""
    for fact in facts:
        yield from _type(fact, "##")
    shown = set(facts)
    parts = sorted((part for fact in facts for part in _parts(fact, shown)), key=lambda part: part.__name__)
    yield "## Parts of facts"
    yield ""
    for part in parts:
        yield from _type(part, "###")


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _type(shown: type, heading: str) -> Iterator[str]:
    """Yield a type's documentation, fields, properties and methods."""
    yield f"{heading} {shown.__name__}"
    yield ""
    yield inspect.getdoc(shown) or ""
    yield ""
    for field in dataclasses.fields(shown):
        yield f"* `{field.name}: {field.type}`"
    for name, member in vars(shown).items():
        if name.startswith("_") or not (isinstance(member, property) or inspect.isfunction(member)):
            continue
        summary = (inspect.getdoc(member) or "").partition("\n")[0]
        if isinstance(member, property):
            yield f"* `{name}` (property): {summary}"
        else:
            yield f"* `{name}{_signature(member)}`: {summary}"
    yield ""


def _signature(method: Any) -> str:
    """Return a method's signature as it is written, without `self`."""
    signature = inspect.signature(method)
    parameters = [value for name, value in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=parameters)).replace("'", "")


def _parts(fact: type, seen: set[type]) -> Iterator[type]:
    """Yield the dataclasses in the annotations of a type's fields, and those in theirs, each once."""
    scope = vars(sys.modules[fact.__module__])
    for field in dataclasses.fields(fact):
        for word in _WORD.findall(str(field.type)):
            part = scope.get(word)
            if inspect.isclass(part) and dataclasses.is_dataclass(part) and part not in seen:
                seen.add(part)
                yield part
                yield from _parts(part, seen)
