"""Finds rules, fixes and collectors: built-in ones by walking the folders, others through entry points.

There is no list to edit. Both kinds are loaded the same way, and a plugin that cannot be loaded is a finding.
"""

from __future__ import annotations

import importlib
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from verl_doctor.toolkit.change import Fix
from verl_doctor.toolkit.collectors.installed.plugins import PluginProblem, PluginProblems
from verl_doctor.toolkit.deferred import function_of
from verl_doctor.toolkit.engine import part_index
from verl_doctor.toolkit.engine.part_index import Part, Place
from verl_doctor.toolkit.engine.plugin_exit import limited_import, refuse_exits
from verl_doctor.toolkit.facts import Collector
from verl_doctor.toolkit.process.gc_pause import paused_collection
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.system.own_files import TOOLKIT
from verl_doctor.toolkit.system.ownership import next_step, why_any_not_ours

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GROUPS = ("verl_doctor.checks", "verl_doctor.fixes", "verl_doctor.facts")
_RULES_AND_FIXES = ("verl_doctor.checks", "verl_doctor.patches")
_COLLECTORS = "verl_doctor.toolkit.collectors"
_OWN = "verl-doctor"
_ALL_TRIALS = 60.0  # seconds that the imports of all plugins may be tried
_MOST_OFFERED = 500  # entry points of one distribution: each takes some milliseconds
_DECLARATION = b"\n@collector"


@dataclass(frozen=True)
class Plugin:
    """One entry point of another distribution, and the names of what it adds."""

    entry_point: str
    group: str
    distribution: str
    version: str
    adds: tuple[str, ...]


@dataclass(frozen=True)
class Registry:
    """Everything that the doctor can observe, judge and repair."""

    checks: tuple[Check, ...]
    fixes: tuple[Fix, ...]
    collectors: tuple[Collector, ...]
    plugins: tuple[Plugin, ...]
    problems: PluginProblems

    def check(self, code: str) -> Check | None:
        """Return the rule with this code."""
        return next((check for check in self.checks if check.code == code), None)

    def fix(self, identifier: str | None) -> Fix | None:
        """Return the fix with this name."""
        return next((fix for fix in self.fixes if fix.id == identifier), None)


@paused_collection()
def load(disabled: Iterable[str] = ()) -> Registry:
    """Load the built-in parts, then the plugins whose distribution is not in `disabled`.

    A plugin may not take an existing code, fix name or fact: it is refused, and both are named.
    """
    shelf = _Shelf()
    for part in part_index.parts(built_in):
        shelf.put(part, _OWN)
    plugins, problems = [], []
    unusable: dict[tuple[str, str], str] = {}
    left, offered = _ALL_TRIALS, Counter[str]()
    for group, entry_points in _entry_points():
        for entry_point in entry_points:
            distribution = entry_point.dist.name if entry_point.dist else "unknown"
            if distribution in disabled:
                continue
            offered[distribution] += 1
            if offered[distribution] > _MOST_OFFERED:
                if offered[distribution] == _MOST_OFFERED + 1:
                    why = (
                        f"this and what follows is not loaded: a distribution may offer {_MOST_OFFERED} "
                        "entry points"
                    )
                    problems.append(PluginProblem(entry_point.name, distribution, why))
                continue
            if why := _why_not_ours(entry_point):
                problems.append(PluginProblem(entry_point.name, distribution, f"it is not loaded: {why}"))
                continue
            if not entry_point.pattern.match(
                entry_point.value
            ):  # importlib.metadata raises an error of its own
                problems.append(
                    PluginProblem(entry_point.name, distribution, "it names no module and part of one")
                )
                continue
            from verl_doctor.toolkit.engine import plugin_trial  # noqa: PLC0415 - few have a plugin
            from verl_doctor.toolkit.probes import plugin_import  # noqa: PLC0415 - few have a plugin

            begun = time.monotonic()
            reason = unusable.get((distribution, entry_point.module)) or plugin_trial.why_unusable(
                entry_point, left
            )
            left -= time.monotonic() - begun
            if reason:
                unusable[distribution, entry_point.module] = reason
                problems.append(PluginProblem(entry_point.name, distribution, reason))
                continue
            refuse_exits()
            before = plugin_import.shared()
            try:
                with limited_import(plugin_trial.LIMIT):
                    loaded_part = entry_point.load()
                if replaced := plugin_import.restored(before):
                    raise TypeError(plugin_trial.why_replaced(replaced))  # noqa: TRY301
                parts = list(_parts(_offered(loaded_part)))
                if not parts:
                    raise TypeError("it offers no check, fix or collector")  # noqa: TRY301
                for part in parts:
                    shelf.put(part, distribution)
            except BaseException as error:
                plugin_import.restored(before)
                if isinstance(error, KeyboardInterrupt):
                    raise
                problems.append(
                    PluginProblem(entry_point.name, distribution, f"{type(error).__name__}: {error}")
                )
                continue
            version = entry_point.dist.version if entry_point.dist else ""
            names = tuple(_name(part) for part in parts)
            plugins.append(Plugin(entry_point.name, group, distribution, version, names))
    loaded = shelf.parts
    return Registry(
        checks=tuple(sorted((p for p in loaded if isinstance(p, Check)), key=lambda check: check.code)),
        fixes=tuple(sorted((p for p in loaded if isinstance(p, Fix)), key=lambda fix: fix.id)),
        collectors=tuple(p for p in loaded if isinstance(p, Collector)),
        plugins=tuple(plugins),
        problems=PluginProblems(tuple(problems)),
    )


def built_in() -> list[tuple[Part, Place]]:
    """Import and return the built-in parts, each with its place.

    Raises ValueError when two have the same name.
    """
    shelf = _Shelf()
    places: dict[int, Place] = {}
    for module in (*(name for name, _ in _modules(_RULES_AND_FIXES)), *collector_modules()):
        for name, part in vars(importlib.import_module(module)).items():
            if isinstance(part, Part):
                shelf.put(part, _OWN)
                if id(part) not in places or module == _defined_by(part).__module__:
                    places[id(part)] = module, name
    return [(part, places[id(part)]) for part in shelf.parts]


class _Shelf:
    """The parts loaded so far, and from where, so that duplicate names are detected."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], tuple[Part, str]] = {}

    @property
    def parts(self) -> list[Part]:
        """All parts, those of plugins within limits."""
        if all(owner == _OWN for _, owner in self._owners.values()):
            return [part for part, _ in self._owners.values()]
        from verl_doctor.toolkit.engine.plugin_limits import Together, limited  # noqa: PLC0415 - few have a plugin

        together = Together()
        return [
            part if owner == _OWN or isinstance(part, Collector) else limited(part, together)
            for part, owner in self._owners.values()
        ]

    def put(self, part: Part, owner: str) -> None:
        key = (type(part).__name__, _name(part))
        first, other = self._owners.setdefault(key, (part, owner))
        if first is not part and _defined_by(first) is not _defined_by(part):
            raise ValueError(f"{key[1]} is already taken by {other}")


def collector_modules() -> list[str]:
    """Return the full names of the built-in modules that declare a collector.

    Helper modules are left to their callers.
    """
    return [name for name, file in _modules([_COLLECTORS]) if _DECLARATION in Path(file).read_bytes()]


def _modules(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield full names and files of the modules below these packages.

    Names that begin with `_` are helpers and skipped.

    Each folder is listed once; `pkgutil` would list it three times, and its bytecode too.
    """
    for package in packages:
        for folder in importlib.import_module(package).__path__:
            for entry in sorted(entry.name for entry in os.scandir(folder)):
                name, dot, suffix = entry.partition(".")
                if name.startswith("_"):
                    continue
                if suffix == "py":
                    yield f"{package}.{name}", f"{folder}/{entry}"
                elif not dot and os.path.isfile(f"{folder}/{entry}/__init__.py"):
                    yield from _modules([f"{package}.{name}"])


def _entry_points() -> Iterator[tuple[str, Iterable[EntryPoint]]]:
    """Yield our groups, each with the entry points of other distributions."""
    if not _may_have_plugins():
        return
    import importlib.metadata  # noqa: PLC0415 - slow to import, and few have a plugin

    if not any(map(_endless_lists, dict.fromkeys(sys.path))):
        found = importlib.metadata.entry_points()
        yield from ((group, found.select(group=group)) for group in _GROUPS)
        return
    readable = [
        entry_point
        for distribution in importlib.metadata.distributions()
        if not _is_endless(getattr(distribution, "_path", None))
        for entry_point in distribution.entry_points
    ]
    for group in _GROUPS:
        yield group, [entry_point for entry_point in readable if entry_point.group == group]


def _endless_lists(place: str) -> list[str]:
    """Return the distributions in a folder whose entry-points file would never be read to its end."""
    try:
        return [name for name in os.listdir(place or os.curdir) if _is_endless(Path(place, name))]  # noqa: PTH208 - names alone
    except OSError:
        return []


def _is_endless(folder: object) -> bool:
    if not isinstance(folder, Path) or folder.suffix.lower() not in (".dist-info", ".egg-info"):
        return False
    try:
        return not stat.S_ISREG((folder / "entry_points.txt").stat().st_mode)
    except OSError:
        return False


def _may_have_plugins() -> bool:
    """Return whether an entry-points file on the path names one of our groups.

    Anything other than a plain folder of installed distributions, such as a zip file or an egg, counts as if
    it did.
    """
    return any(map(_may_hold_plugins, dict.fromkeys(sys.path)))


def _may_hold_plugins(place: str) -> bool:
    try:
        names = [entry.name for entry in os.scandir(place or os.curdir)]
    except NotADirectoryError:
        return True
    except OSError:
        return False
    if any(name.lower().endswith(".egg") for name in (*names, place.rstrip("/"))):
        return True
    lists = (name for name in names if name.lower().endswith((".dist-info", ".egg-info")))
    return any(_names_a_group(Path(place, name)) for name in lists)


def _names_a_group(folder: Path) -> bool:
    try:
        if _is_endless(folder):
            return False
        text = (folder / "entry_points.txt").read_bytes()
    except OSError:
        return False
    return any(group.encode("ascii") in text for group in _GROUPS)


def _why_not_ours(entry_point: EntryPoint) -> str:
    """Return why an entry-points file may be another user's, "" when it is not.

    Any user may own a folder on the path.

    The owner of the doctor's own code is trusted anyway.
    """
    folder = getattr(entry_point.dist, "_path", None)  # there is no public name for it
    if not isinstance(folder, Path):
        return ""
    owner = TOOLKIT.stat().st_uid
    places = (folder / "entry_points.txt", folder)
    why = why_any_not_ours(places, group_counts=True, trusted=owner)
    return f"another user could have written its list of plugins: {why}; {next_step(folder)}" if why else ""


def _defined_by(part: Part) -> Any:
    """Return a part's function: a plugin may hold one of ours, which the index lists without its module."""
    match part:
        case Check():
            return function_of(part.judge)
        case Fix():
            return function_of(part.plan)
    return function_of(part.collect)


def _parts(values: Iterable[Any]) -> Iterator[Part]:
    return (value for value in values if isinstance(value, Part))


def _offered(loaded: Any) -> Iterable[Any]:
    """Return the parts of an entry point: it may name one part, a module full of them, or a list."""
    if isinstance(loaded, ModuleType):
        return vars(loaded).values()
    return loaded if isinstance(loaded, (list, tuple)) else (loaded,)


def _name(part: Part) -> str:
    match part:
        case Check():
            return part.code
        case Fix():
            return part.id
    return part.name
