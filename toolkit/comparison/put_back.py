"""Undo one difference in the new facts, as if that value had not changed.

A named subject (a package, a variable, a key of the configuration) is an entry in several facts, and is
restored in all of them. For everything else, those values are restored that determine what is reported about
the subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from verl_doctor.toolkit.collectors.packages.requirements import Requirements, Unmet, meets
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.comparison.subjects import READERS, Reader
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Need, Unknown, arguments_from, needs_of

_Path = tuple[Any, ...]
"""Steps into a fact: names of fields, keys, list indices."""

_MOST = 200
"""How many values of one fact are examined."""


def put_back(difference: Difference, wanted: Iterable[type], old: Facts, new: Facts) -> dict[type, Any]:
    """Return those of the wanted facts that change when the difference is undone."""
    triples = [(fact, old.get(fact), new.get(fact)) for fact in wanted]
    entries = {
        fact: changed
        for fact, before, after in triples
        if before != after and (changed := _with_subject(after, before, difference)) is not after
    }
    return entries or _with_values(difference, wanted, old, new)


def whole_facts(difference: Difference, wanted: Iterable[type], old: Facts) -> dict[type, Any]:
    """Return the whole old facts that show the difference: for a finding that names the subject."""
    return {fact: old.get(fact) for fact in wanted if fact.__name__ in difference.facts}


def _with_values(difference: Difference, wanted: Iterable[type], old: Facts, new: Facts) -> dict[type, Any]:
    key = (difference.kind, difference.subject)
    known = set(wanted)
    for reader in READERS:
        (need, *_) = needs_of(reader.read)
        before, after = old.get(need.fact), new.get(need.fact)
        if need.fact.__name__ not in difference.facts or need.fact not in known or before == after:
            continue
        if isinstance(before, Unknown) or isinstance(after, Unknown):
            return {need.fact: before}
        value_read = _value_read(reader, need, after, new, key)
        own = [
            path
            for path in list(_differing(after, before))[:_MOST]
            if _value_read(reader, need, _with_old(after, before, path), new, key) != value_read
        ]
        for path in own:
            after = _with_old(after, before, path)
        if own:
            return {need.fact: after}
    return {}


def _value_read(reader: Reader, need: Need, value: Any, facts: Facts, key: tuple[str, str]) -> str | None:
    """Return what a reader reports about one subject, with another value in its first fact."""
    others = tuple(
        other for other in needs_of(reader.read) if other is not need and other.fact is not need.fact
    )
    arguments = arguments_from(others, facts.get)
    if isinstance(arguments, Unknown):
        return None
    return reader.read(**{**arguments, need.parameter: value}).get(key)


def _differing(new: Any, old: Any, path: _Path = ()) -> Iterator[_Path]:
    """Yield the places at which two values differ, as deep as both have the same shape."""
    if new == old:
        return
    if is_dataclass(new) and type(new) is type(old):
        for field in fields(new):
            yield from _differing(getattr(new, field.name), getattr(old, field.name), (*path, field.name))
    elif isinstance(new, tuple) and isinstance(old, tuple) and len(new) == len(old):
        for place, (mine, theirs) in enumerate(zip(new, old, strict=True)):
            yield from _differing(mine, theirs, (*path, place))
    else:
        yield path


def _with_old(new: Any, old: Any, path: _Path) -> Any:
    """Return a value with the old value at a path."""
    if not path:
        return old
    step, *rest = path
    if isinstance(new, tuple):
        return (*new[:step], _with_old(new[step], old[step], tuple(rest)), *new[step + 1 :])
    return replace(new, **{step: _with_old(getattr(new, step), getattr(old, step), tuple(rest))})


def _with_subject(after: Any, before: Any, difference: Difference) -> Any:
    if isinstance(after, Requirements) and isinstance(before, Requirements) and difference.kind == "package":
        return _with_package(after, before, difference)
    return _with_entry(after, before, difference.subject)


def _with_package(after: Requirements, before: Requirements, difference: Difference) -> Requirements:
    """Return what is not met with the old release of one package.

    Its own requirements are those of the old release; what others require of it, the old release may not meet
    either.
    """
    name = difference.subject
    release = difference.old.removesuffix(" (editable)")
    unmet = [entry for entry in after.unmet if entry.by != name and not _is_met(entry, name, release)]
    unmet += [entry for entry in before.unmet if entry.by == name]
    return after if tuple(unmet) == after.unmet else replace(after, unmet=tuple(unmet))


def _is_met(entry: Unmet, name: str, release: str) -> bool:
    if entry.name != name or not release:
        return False
    try:
        return meets(SpecifierSet(entry.wanted), release) is True
    except InvalidSpecifier:
        return False


def _with_entry(after: Any, before: Any, name: str) -> Any:
    """Return a fact with the other fact's entries of that name. It is the same object if none differ."""
    if not is_dataclass(after) or isinstance(after, (type, Unknown)) or type(after) is not type(before):
        return after
    changed = {}
    for field in fields(after):
        new, old = getattr(after, field.name), getattr(before, field.name)
        put = _entry_back(new, old, name)
        if put is not new:
            changed[field.name] = put
    return replace(after, **changed) if changed else after


def _entry_back(new: Any, old: Any, name: str) -> Any:
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        return _key_back(new, old, name)
    if isinstance(new, tuple) and isinstance(old, tuple) and new != old:
        mine = [entry for entry in new if _is_called(entry, name)]
        theirs = [entry for entry in old if _is_called(entry, name)]
        if mine != theirs:
            return (*(entry for entry in new if not _is_called(entry, name)), *theirs)
    return new


def _key_back(new: Mapping[str, Any], old: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Restore a key; `a.b` may also be the key `b` below `a`."""
    first, _, rest = name.partition(".")
    if name in new or name in old:
        if new.get(name) == old.get(name) and (name in new) == (name in old):
            return new
        others = {key: value for key, value in new.items() if key != name}
        return {**others, name: old[name]} if name in old else others
    if rest and isinstance(new.get(first), Mapping) and isinstance(old.get(first), Mapping):
        inner = _key_back(new[first], old[first], rest)
        return new if inner is new[first] else {**new, first: inner}
    return new


def _is_called(entry: Any, name: str) -> bool:
    """Return whether an entry is about this name.

    The entry is an equal text, or a record that begins with the name or names it.
    """
    if isinstance(entry, str):
        return _same(entry, name)
    if not is_dataclass(entry):
        return False
    called = (fields(entry)[0].name, "name", "package", "key")
    return any(
        isinstance(value := getattr(entry, field, None), str) and _same(value, name) for field in called
    )


def _same(value: str, name: str) -> bool:
    return value == name or value.replace("_", "-").lower() == name
