"""Which of verl's modules and functions a rollout path runs: from its entry modules along the imports and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.api_use import Import, Uses
from verl_doctor.toolkit.py_source import SourceTree

SYNC, ASYNC = "sync rollout", "async rollout"
# Where verl keeps its vLLM rollout when it has no registry (through 0.5), below its top package.
_ROLLOUT = "workers.rollout.vllm_rollout"
_SERVER = "workers.rollout.vllm_rollout.vllm_async_server"
_REGISTRY = ("workers.rollout.base", "_ROLLOUT_REGISTRY")
# Through 0.5 a worker imports this inside a function, in every run with vLLM and FSDP.
_SHARDING = "workers.sharding_manager.fsdp_vllm"


@dataclass(slots=True)
class Reach:
    """What one path runs: modules that it imports, and functions ("module:Class.method") that it calls for sure."""

    modules: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)


def entries(verl: SourceTree, parsed: Callable[[str], ast.Module | None]) -> dict[str, tuple[str, ...]]:
    """The modules with which each path begins. A path that this verl does not have is not listed."""
    registered = _registered(verl, parsed(f"{verl.name}.{_REGISTRY[0]}"))
    also: tuple[str, ...] = ()
    if not registered and _is_module(verl, _ROLLOUT):
        registered = dict.fromkeys(("sync", "async"), f"{verl.name}.{_ROLLOUT}")
        also = (f"{verl.name}.{_SHARDING}",)
    found = {}
    if "sync" in registered:
        found[SYNC] = _existing(verl, registered["sync"], *also)
    if "async" in registered and _is_module(verl, _SERVER):
        found[ASYNC] = _existing(verl, registered["async"], f"{verl.name}.{_SERVER}", *also)
    return found


def _registered(verl: SourceTree, tree: ast.Module | None) -> dict[str, str]:
    """Read `_ROLLOUT_REGISTRY = {("vllm", "sync"): "verl.workers...Class"}`."""
    found = {}
    for node in tree.body if tree is not None else []:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() as table)
            ) if name == _REGISTRY[1]:
                for key, value in zip(table.keys, table.values, strict=True):
                    match key, value:
                        case (
                            ast.Tuple(elts=[ast.Constant(value="vllm"), ast.Constant(value=str(mode))]),
                            ast.Constant(value=str(where)),
                        ):
                            found[mode] = verl.own_name(where.rpartition(".")[0]) or ""
    return found


def _is_module(verl: SourceTree, name: str) -> bool:
    return verl.locate(f"{verl.name}.{name}") is not None


def _existing(verl: SourceTree, *names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name and verl.locate(name) is not None))


def reach(start: Iterable[str], read: Callable[[str], Uses | None]) -> Reach:
    """Follow a path from its entry modules.

    An entry module's methods are run by other parts of verl, unless every mention of their name stands under a
    condition. Elsewhere a function is run when something that is run calls its name unconditionally: a function
    that is only handed on, for instance to patch vLLM with it, may never be called.
    """
    found, begin = Reach(), tuple(start)
    for name in begin:
        _load(name, found, read)
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
    """Add the functions that are run for sure, given the modules that are loaded."""
    offered = _units_of(found, read)
    sites = _sites(found, read)
    methods = {
        unit: name
        for unit, (name, is_method) in offered.items()
        if is_method and unit.partition(":")[0] in begin
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
    """Add a module, the packages above it, and what they import at their top level."""
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
    """Every function of the modules reached: the name by which it is mentioned, and whether it is a method.

    A dunder method goes by its class.
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
    """For each name, the functions that mention it (or call it), each with the conditions around that."""
    sites: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for module in found.modules:
        uses = read(module)
        if uses is None:
            continue
        for unit, names in (uses.calls if calls_only else uses.mentions).items():
            for name, when in names.items():
                sites.setdefault(name, []).append((f"{module}:{unit}", when))
    return sites


def condition_of(unit: str, uses: Uses, everything: Mapping[str, Uses]) -> str:
    """Why a function is not run in every run, in words: the condition around its call, or that nobody calls it."""
    owner, _, name = unit.rpartition(".")
    name = owner if owner and name.startswith("__") else name
    for other in [uses, *everything.values()]:
        for mentions in other.mentions.values():
            if mentions.get(name):
                return " and ".join(mentions[name])
    return f"{name}() is called"
