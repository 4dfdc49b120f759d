"""verl's modules and functions that a job's path runs: from entry modules along imports and calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.api.use import Import, Uses

_METHOD_TEST = re.compile(r"(?P<name>\w+) (?P<is>==|!=) '(?P<method>\w+)'")


@dataclass(slots=True)
class Reach:
    """The modules that a path imports, and the functions ("module:Class.method") that it certainly calls.

    `sent` are the names of methods that it has its workers run.
    """

    modules: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)


def reach(start: Iterable[str], read: Callable[[str], Uses | None]) -> Reach:
    """Follow a path from its entry modules, or entry classes ("module:Class").

    An entry module's methods are run by other parts of verl, unless every mention of their name is
    conditional. Elsewhere a function is run if a function that is run calls its name unconditionally: a
    function that is only passed on, for instance to patch vLLM with it, may never be called.
    """
    found, begin = Reach(), tuple(start)
    for name in begin:
        _load(name.partition(":")[0], found, read)
    while True:
        before = len(found.modules), len(found.units)
        _run(begin, found, read)
        for unit in tuple(found.units):
            module, _, inner = unit.partition(":")
            for entry in _imports(module, read):
                if entry.unit == inner and not entry.conditional:
                    _load(entry.module, found, read)
        if before == (len(found.modules), len(found.units)):
            return found


def _run(begin: tuple[str, ...], found: Reach, read: Callable[[str], Uses | None]) -> None:
    """Add the functions that are certainly run, given the modules that are loaded."""
    found.sent |= {name for module in found.modules for name in _sent(module, found, read)}
    offered = _units_of(found, read)
    sites = _sites(found, read)
    methods = {
        unit: name
        for unit, (name, is_method) in offered.items()
        if is_method and (unit.partition(":")[0] in begin or unit.rpartition(".")[0] in begin)
    }
    optional: set[str] = set()
    while True:
        more = {
            unit
            for unit, name in methods.items()
            if unit not in optional
            and (others := [site for site in sites.get(name, []) if site[0] != unit])
            and all(when or where in optional for where, when in others)
        }
        if not more:
            break
        optional |= more
    found.units |= methods.keys() - optional
    found.units |= set(_receivers(found, read))
    calls = _sites(found, read, calls_only=True)
    while True:
        called = {
            name
            for name, places in calls.items()
            for where, when in places
            if not when and (where.endswith(":") or where in found.units)
        }
        more = {unit for unit, (name, _) in offered.items() if name in called} - found.units - optional
        if not more:
            return
        found.units |= more


def _load(name: str, found: Reach, read: Callable[[str], Uses | None]) -> None:
    """Add a module, the packages above it, and their top-level imports."""
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if not module or module in found.modules:
            continue
        found.modules.add(module)
        waiting.append(module.rpartition(".")[0])
        waiting += [
            entry.module for entry in _imports(module, read) if not entry.unit and not entry.conditional
        ]


def _imports(module: str, read: Callable[[str], Uses | None]) -> list[Import]:
    uses = read(module)
    return uses.imports if uses else []


def _units_of(found: Reach, read: Callable[[str], Uses | None]) -> dict[str, tuple[str, bool]]:
    """Return every function of the modules reached: its name in mentions, and whether it is a method.

    A dunder method is mentioned by the name of its class.
    """
    offered = {}
    for module in found.modules:
        uses = read(module)
        for unit, owner in (uses.units if uses else {}).items():
            name = unit.rpartition(".")[2]
            if name.startswith("__") and owner:
                name = owner
            offered[f"{module}:{unit}"] = (name, bool(owner))
    return offered


def _sites(
    found: Reach, read: Callable[[str], Uses | None], *, calls_only: bool = False
) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Return the functions that mention (or call) each name, each with the conditions around it."""
    sites: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for module in found.modules:
        uses = read(module)
        if uses is None:
            continue
        for unit, names in (uses.calls if calls_only else uses.mentions).items():
            for name, when in names.items():
                sites.setdefault(name, []).append((f"{module}:{unit}", unmet(when, found.sent)))
    return sites


def _sent(module: str, found: Reach, read: Callable[[str], Uses | None]) -> Iterator[str]:
    """Yield the names of methods that the executed functions have the workers run."""
    uses = read(module)
    for unit, names in (uses.sent if uses else {}).items():
        if f"{module}:{unit}" in found.units:
            yield from names


def unmet(when: tuple[str, ...], sent: Collection[str]) -> tuple[str, ...]:
    """Return the conditions that remain when these methods are sent to the workers.

    `method == "init_worker"` holds in every run if "init_worker" is sent. So does `method != "other"` next to
    it, as in an `elif`.
    """
    if not when or not sent:
        return when
    tests = [match for condition in when if (match := _METHOD_TEST.fullmatch(condition))]
    methods = {
        test["name"]: test["method"] for test in tests if test["is"] == "==" and test["method"] in sent
    }
    held = {
        test.string
        for test in tests
        if test["name"] in methods and (test["is"] == "==") == (test["method"] == methods[test["name"]])
    }
    return tuple(condition for condition in when if condition not in held)


def _receivers(found: Reach, read: Callable[[str], Uses | None]) -> Iterator[str]:
    """Yield the functions that compare the name of the method sent to them: they are run for each name."""
    for module in found.modules if found.sent else ():
        uses = read(module)
        for unit, names in (uses.mentions if uses else {}).items():
            if unit and any(unmet(when, found.sent) != when for when in names.values()):
                yield f"{module}:{unit}"


def condition_of(unit: str, uses: Uses, everything: Mapping[str, Uses]) -> tuple[str, bool]:
    """Return why a function is not run in every run: the condition around its call, or the lack of a call.

    The second value: whether the job's settings meet none of those conditions.
    """
    owner, _, name = unit.rpartition(".")
    name = owner if owner and name.startswith("__") else name
    sites = [
        (when[name], any((inner, condition) in other.off for condition in when[name]))
        for other in [uses, *everything.values()]
        for inner, when in other.mentions.items()
        if when.get(name)
    ]
    if not sites:
        return f"{name}() is called", False
    return " and ".join(sites[0][0]), all(off for _, off in sites)
