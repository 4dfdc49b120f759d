"""Configuration keys for which verl's dataclasses have no field, read from their sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.config_classes import Refused
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.sources.python.answers import External, Present
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import SourceTree, read
from verl_doctor.toolkit.sources.python.symbols import Attribute, Class

_WITHOUT_FIELDS = frozenset({"collections.abc.Mapping", "object", "abc.ABC"})
_DEEPEST = 10
_MAKES = re.compile(rb"omega_conf_to_dataclass\(\s*(?:self\.)?config\.([\w.]+)")
_NEWLINE = b"\n"


def refused_keys(configuration: Configuration, folder: Path, module: str) -> Iterator[Refused]:
    """Yield the appended keys that a class does not accept, in the tree in `folder`, whose import name is `module`."""
    tree = SourceTree(folder, module, "verl")
    found = list(_refused(configuration, Sources([tree])))
    made = list(_made(tree)) if found else []
    for refused in found:
        place = next((place for name, place in made if _concerns(name, refused.section)), "")
        if place:
            yield replace(refused, read_from=place)


def _made(tree: SourceTree) -> Iterator[tuple[str, str]]:
    """Yield the sections that verl converts to objects: the last part of a section's name, and the place."""
    for path in tree.files():
        source = read(path)
        if isinstance(source, bytes):
            for match in _MAKES.finditer(source):
                yield match[1].decode(), f"{path}:{source.count(_NEWLINE, 0, match.start()) + 1}"


def _concerns(name: str, section: str) -> bool:
    """Return whether an object made of `name` contains the section: everything below it is converted with it."""
    return f".{name}." in f".{section}."


def _refused(there: Configuration, sources: Sources) -> Iterator[Refused]:
    for word in there.overrides:
        if word.fate != "applied" or word.sign not in ("+", "++"):
            continue
        section, name = _section(word.key, there)
        target = there.default(f"{section}._target_") if section else None
        if not name or not isinstance(target, str):
            continue
        found = sources.resolve(target)
        if not isinstance(found, Present) or not isinstance(found.definition, Class):
            continue
        fields = _fields(found.definition, sources)
        if fields is not None and name not in fields:
            yield Refused(word, section, name, target)


def _fields(owner: Class, sources: Sources, depth: int = 0) -> frozenset[str] | None:
    """Return the fields of a dataclass and its bases; None if they are unknown."""
    if depth > _DEEPEST or owner.open or not any("dataclass" in decorator for decorator in owner.decorators):
        return None
    names = {name for name, member in owner.members.items() if isinstance(member, Attribute) and member.field}
    for base in owner.bases:
        found = sources.resolve(f"{owner.module}.{base}")
        if not isinstance(found, Present):
            return None
        if isinstance(found.definition, External) and found.definition.dotted in _WITHOUT_FIELDS:
            continue
        above = _fields(found.definition, sources, depth + 1) if isinstance(found.definition, Class) else None
        if above is None:
            return None
        names |= above
    return frozenset(names)


def _section(key: str, there: Configuration) -> tuple[str, str]:
    """Return the innermost existing section of verl's tree around a key, and what is new in it; empty if the key exists."""
    steps = key.split(".")
    for end in range(len(steps) - 1, 0, -1):
        section = ".".join(steps[:end])
        found = there.default(section)
        if isinstance(found, Mapping):
            return (section, steps[end]) if steps[end] not in found else ("", "")
    return "", ""
