"""Loads built-in rules, fixes and collectors from their index; a command imports only what it uses.

The index holds declarations; a function is imported when it is called, and the class of a fact when it is
needed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from verl_doctor.toolkit.change import Fix
from verl_doctor.toolkit.deferred import Deferred, imported
from verl_doctor.toolkit.engine import kept_index
from verl_doctor.toolkit.facts import Collector, FactReference, Need
from verl_doctor.toolkit.rule import Check, Example

Part = Check | Fix | Collector
Place = tuple[str, str]
"""A module, and the name of a part in it."""

_CHECK = ("severity", "phase", "cost", "since")
_FIX = ("safety", "upstream", "needed", "restart", "last_resort")
_FUNCTIONS = ("applies", "paths", "unjudged")


def parts(make: Callable[[], Sequence[tuple[Part, Place]]]) -> Sequence[Part]:
    """Return the parts of the index; where none is stored, index those that `make` imports."""
    if (document := kept_index.known("parts")) is not None:
        with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):  # the file was edited
            return restored(document)
    made = make()
    kept_index.keep("parts", lambda: parts_document(made))
    return [part for part, _ in made]


def example_names(checks: Iterable[Check]) -> dict[str, list[list[Any]]]:
    """Return for each rule the names of its examples, and whether the rule reports something in each."""
    return {check.code: [list(named) for named in check.named_examples] for check in checks}


# Declarations to JSON types


def parts_document(made: Iterable[tuple[Part, Place]]) -> dict[str, Any]:
    """Return the declarations of parts that were found in these places."""
    document: dict[str, list[Any]] = {"checks": [], "fixes": [], "collectors": []}
    for part, place in made:
        match part:
            case Check():
                document["checks"].append(_check_entry(part, place))
            case Fix():
                document["fixes"].append(_fix_entry(part, place))
            case Collector():
                document["collectors"].append(_collector_entry(part, place))
    return document


def _check_entry(part: Check, place: Place) -> dict[str, Any]:
    entry: dict[str, Any] = {"code": part.code, "in": place, "requires": sorted(part.requires)}
    entry |= {name: getattr(part, name) for name in _CHECK}
    entry["judge"] = _function(part.judge, place, "judge")
    entry["needs"] = _needs(part.needs)
    entry["doc"] = part.judge.__doc__
    for name in _FUNCTIONS:
        if (function := getattr(part, name)) is not None:
            entry[name] = _function(function, place, name)
            entry[f"{name}_needs"] = _needs(getattr(part, f"{name}_needs"))
    return entry


def _fix_entry(part: Fix, place: Place) -> dict[str, Any]:
    return {
        "id": part.id,
        "repairs": part.repairs,
        "plan": _function(part.plan, place, "plan"),
        "needs": _needs(part.needs),
        "doc": part.plan.__doc__,
        **{name: getattr(part, name) for name in _FIX},
    }


def _collector_entry(part: Collector, place: Place) -> dict[str, Any]:
    return {
        "fact": part.reference.key,
        "needs": _needs(part.needs),
        "collect": _function(part.collect, place, "collect"),
        "timeout": part.timeout,
        "local": part.local,
        "kept": part.kept,
    }


def _function(function: Callable[..., Any], place: Place, attribute: str) -> list[str]:
    """Return where a function is imported from, as module and name, and the module that defines it.

    A shared function is imported from its defining module, so that no rule is imported for it.
    """
    defined_in = function.__module__
    path = getattr(function, "__qualname__", "")
    with contextlib.suppress(ImportError, AttributeError):
        if path and imported(defined_in, path) is function:
            return [defined_in, path, defined_in]
    module, name = place
    return [module, f"{name}.{attribute}", defined_in]


def _needs(needs: Iterable[Need]) -> list[list[Any]]:
    return [[need.parameter, need.reference.key, need.tolerant] for need in needs]


# JSON types to declarations


_References = dict[str, FactReference]


def restored(document: Mapping[str, Any]) -> list[Part]:
    """Return the parts that a document declares, without imports."""
    known: _References = {}
    names = functools.cache(lambda: kept_index.section("examples", lambda: _names_by_import(document)))
    return [
        *(_check(entry, known, names) for entry in document["checks"]),
        *(_fix(entry, known) for entry in document["fixes"]),
        *(_collector(entry, known) for entry in document["collectors"]),
    ]


def _names_by_import(document: Mapping[str, Any]) -> dict[str, list[list[Any]]]:
    return example_names(imported(*entry["in"]) for entry in document["checks"])


def _cases(module: str, name: str) -> tuple[Example, ...]:
    check: Check = imported(module, name)
    return check.examples


def _check(entry: Mapping[str, Any], known: _References, names: Callable[[], Mapping[str, Any]]) -> Check:
    functions: dict[str, Any] = {}
    for name in _FUNCTIONS:
        if name in entry:
            functions[name] = Deferred(*entry[name])
            functions[f"{name}_needs"] = _needed(entry[f"{name}_needs"], known)
    return Check(
        code=entry["code"],
        judge=Deferred(*entry["judge"], documentation=entry["doc"]),
        needs=_needed(entry["needs"], known),
        requires=frozenset(entry["requires"]),
        cases=functools.partial(_cases, *entry["in"]),
        case_names=lambda: tuple((name, reports) for name, reports in names()[entry["code"]]),
        **{name: entry[name] for name in _CHECK},
        **functions,
    )


def _fix(entry: Mapping[str, Any], known: _References) -> Fix:
    return Fix(
        id=entry["id"],
        repairs=tuple(entry["repairs"]),
        plan=Deferred(*entry["plan"], documentation=entry["doc"]),
        needs=_needed(entry["needs"], known),
        **{name: entry[name] for name in _FIX},
    )


def _collector(entry: Mapping[str, Any], known: _References) -> Collector:
    return Collector(
        _reference(entry["fact"], known),
        _needed(entry["needs"], known),
        Deferred(*entry["collect"]),
        entry["timeout"],
        entry["local"],
        entry["kept"],
    )


def _needed(needs: Iterable[Sequence[Any]], known: _References) -> tuple[Need, ...]:
    return tuple(Need(parameter, _reference(key, known), tolerant) for parameter, key, tolerant in needs)


def _reference(key: str, known: _References) -> FactReference:
    return known.setdefault(key, FactReference(key))
