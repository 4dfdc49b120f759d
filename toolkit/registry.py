"""Finding the rules, fixes and collectors: built-in ones by walking the folders, others through entry points.

Nobody edits a list. Both kinds go through the same door, and a plugin that cannot be loaded is a finding.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from verl_doctor.toolkit.change import Fix
from verl_doctor.toolkit.fact_plugins import PluginProblem, PluginProblems
from verl_doctor.toolkit.facts import Collector
from verl_doctor.toolkit.rule import Check

_GROUPS = ("verl_doctor.checks", "verl_doctor.fixes", "verl_doctor.facts")
_BUILT_IN = {"verl_doctor.checks": "", "verl_doctor.patches": "", "verl_doctor.toolkit": "fact_"}


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
    """Everything that the doctor knows how to observe, judge and repair."""

    checks: tuple[Check, ...]
    fixes: tuple[Fix, ...]
    collectors: tuple[Collector, ...]
    plugins: tuple[Plugin, ...]
    problems: PluginProblems

    def check(self, code: str) -> Check | None:
        """The rule with this code."""
        return next((check for check in self.checks if check.code == code), None)

    def fix(self, identifier: str | None) -> Fix | None:
        """The fix with this name."""
        return next((fix for fix in self.fixes if fix.id == identifier), None)


def load(disabled: Iterable[str] = ()) -> Registry:
    """Load the built-in parts, then the plugins that are not `disabled` by the name of their distribution.

    A plugin may not take a code, a fix name or a fact that is already there: it is refused, and both are named.
    """
    shelf = _Shelf()
    for package, prefix in _BUILT_IN.items():
        for module in _modules(package, prefix):
            for part in _parts(vars(module).values()):
                shelf.put(part, "verl-doctor")
    plugins, problems = [], []
    entry_points = (
        importlib.metadata.entry_points()
    )  # it reads a file of every distribution beside the doctor
    for group in _GROUPS:
        for entry_point in entry_points.select(group=group):
            distribution = entry_point.dist.name if entry_point.dist else "unknown"
            if distribution in disabled:
                continue
            try:
                parts = list(_parts(_offered(entry_point.load())))
                if not parts:
                    raise TypeError("it offers no check, fix or collector")  # noqa: TRY301
                for part in parts:
                    shelf.put(part, distribution)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                problems.append(
                    PluginProblem(entry_point.name, distribution, f"{type(error).__name__}: {error}")
                )
                continue
            version = entry_point.dist.version if entry_point.dist else ""
            names = tuple(_name(part) for part in parts)
            plugins.append(Plugin(entry_point.name, group, distribution, version, names))
    return Registry(
        checks=tuple(sorted((p for p in shelf.parts if isinstance(p, Check)), key=lambda check: check.code)),
        fixes=tuple(sorted((p for p in shelf.parts if isinstance(p, Fix)), key=lambda fix: fix.id)),
        collectors=tuple(p for p in shelf.parts if isinstance(p, Collector)),
        plugins=tuple(plugins),
        problems=PluginProblems(tuple(problems)),
    )


class _Shelf:
    """What has been loaded so far, and from where, so that two parts with one name are noticed."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], tuple[Any, str]] = {}

    @property
    def parts(self) -> list[Any]:
        return [part for part, _ in self._owners.values()]

    def put(self, part: Check | Fix | Collector, owner: str) -> None:
        key = (type(part).__name__, _name(part))
        there, other = self._owners.setdefault(key, (part, owner))
        if there is not part:
            raise ValueError(f"{key[1]} is already taken by {other}")


def _modules(package: str, prefix: str) -> Iterator[ModuleType]:
    folder = importlib.import_module(package)
    for info in pkgutil.iter_modules(folder.__path__):
        if info.name.startswith(prefix) and not info.name.startswith("_"):
            yield importlib.import_module(f"{package}.{info.name}")


def _parts(values: Iterable[Any]) -> Iterator[Check | Fix | Collector]:
    return (value for value in values if isinstance(value, (Check, Fix, Collector)))


def _offered(loaded: Any) -> Iterable[Any]:
    """An entry point may name one part, a module full of them, or a list of them."""
    if isinstance(loaded, ModuleType):
        return vars(loaded).values()
    return loaded if isinstance(loaded, (list, tuple)) else (loaded,)


def _name(part: Check | Fix | Collector) -> str:
    match part:
        case Check():
            return part.code
        case Fix():
            return part.id
    return part.name
