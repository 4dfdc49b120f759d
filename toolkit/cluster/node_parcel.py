"""The parcel for a node without verl-doctor: the sources of the collectors, with the pure Python packages that they need."""

from __future__ import annotations

import ast
import functools
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.api.uses import LibraryUses, VllmUses
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.environment_place import environment_place
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.model import NamedModel, named_model
from verl_doctor.toolkit.collectors.network.network import with_port
from verl_doctor.toolkit.collectors.packages.tree_manifest import TreeManifest
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.engine import factsfile
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import beyond
from verl_doctor.toolkit.engine.registry import Registry, collector_modules
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Collector, Unknown
from verl_doctor.toolkit.system.own_files import TOOLKIT
from verl_doctor.toolkit.system.sites import Sites
from verl_doctor.toolkit.warm.request import WarmRequest

_PACKAGE = "verl_doctor.toolkit"
_PROGRAM = f"{_PACKAGE}.cluster.node_program"
_REPAIR, _UNDO, _WARM = (f"{_PACKAGE}.cluster.node_{name}" for name in ("repair", "undo", "warm"))
_IN_FEW = frozenset({_REPAIR, _UNDO, _WARM})
_MAIN = f"import sys\nfrom {_PROGRAM} import main\nmain(*sys.argv[1:])\n"
# The doctor's dependencies in pure Python. Of the others, collectors need only psutil and PyYAML, which come with Ray.
_PURE = ("dacite", "packaging", "platformdirs", "pynvml")


# Collected only once: the cluster's control store, which every node would query in full, and whole source trees,
# which are the same wherever the same packages are installed.
_ONCE = frozenset({RayClusters, VllmUses, LibraryUses, VariableReaders, TreeManifest})


@dataclass(frozen=True)
class Parcel:
    """What is sent to a node: the packed files and the request."""

    content: bytes
    request: Mapping[str, Any]

    def order(self, seconds: float, *, detached: bool) -> bytes:
        """Return the input of `probes.node`. The work is limited to `seconds`; a `detached` request leaves its parent."""
        head = {
            "parcel": len(self.content),
            "request": self.request,
            "seconds": seconds,
            "detached": detached,
        }
        return json.dumps(head).encode("ascii") + b"\n" + self.content


def parcel_for(run: Session, collection: Collection) -> Parcel:
    """Return a request for all facts of a node. The launch files are read here, and apply to all nodes."""
    wanted = node_collectors(run.registry)
    collectors = list(_with_needs(wanted, run.registry.collectors))
    modules = list(dict.fromkeys(collector.collect.__module__ for collector in collectors))
    given: dict[type, Any] = {fact: collection.get(fact) for fact in (Launch, Configuration)}
    request = {
        "modules": modules,
        "facts": [collector.name for collector in wanted],
        "given": factsfile.entries(given, run.registry.collectors),
        **_run_settings(run, collection),
    }
    return Parcel(packed(modules), request)


def place_parcel(run: Session, collection: Collection) -> Parcel:
    """Return a request for the location of the environment only."""
    modules = [environment_place.collect.__module__]
    request = {
        "modules": modules,
        "facts": [environment_place.name],
        "given": {},
        **_run_settings(run, collection),
    }
    return Parcel(packed(modules), request)


def warm_parcel(run: Session, warm_request: WarmRequest, seconds: float) -> Parcel:
    """Return a request to load files into the page cache within this many seconds."""
    return Parcel(
        packed([_WARM]), {"warm": asdict(warm_request), "seconds": seconds, "cwd": str(run.machine.cwd)}
    )


def repair_parcel(run: Session, collection: Collection, *, unsafe: bool) -> Parcel:
    """Return a request for the repairs of these rules. The job's own files are repaired only here."""
    chosen = run.selection
    wanted = {"select": chosen.select, "ignore": (*chosen.ignore, *chosen.ignores), "unsafe": unsafe}
    without_job = replace(run, target=replace(run.target, files=(), words=(), data=()))
    return Parcel(_whole_doctor(), {"repair": wanted, **_run_settings(without_job, collection)})


def undo_parcel(run: Session, collection: Collection, *, everything: bool) -> Parcel:
    """Return a request to undo the last repair of the environment, or `everything`."""
    return Parcel(packed([_UNDO]), {"undo": {"everything": everything}, **_run_settings(run, collection)})


@functools.cache
def _whole_doctor() -> bytes:
    """Pack all collectors, rules and fixes, but not the command line, the renderers or the log readers."""
    top = TOOLKIT.parent
    beside = {
        f"verl_doctor/{path.relative_to(top)}": path.read_text("utf-8")
        for folder in ("checks", "patches")
        for path in sorted([*(top / folder).rglob("*.py"), *(top / folder).glob("data/*.*")])
    }
    used = [name for path, text in beside.items() if path.endswith(".py") for name in _names_in(text)]
    return packed([*collector_modules(), _REPAIR, *used], beside)


def node_collectors(registry: Registry) -> tuple[Collector, ...]:
    """Return the collectors that an instant check of a machine needs. Those of plugins are not sent."""
    left_out = beyond(registry.checks, registry.collectors, frozenset({"instant"}))
    return tuple(
        collector
        for collector in registry.collectors
        if not collector.local
        and collector.fact not in left_out
        and collector.collect.__module__.startswith(f"{_PACKAGE}.")
        and not any(needed.fact in _ONCE for needed in _with_needs([collector], registry.collectors))
    )


def _with_needs(wanted: Iterable[Collector], every: Iterable[Collector]) -> Iterator[Collector]:
    """Return these collectors and those that they depend on, directly or not."""
    known = {collector.fact: collector for collector in every}
    waiting, seen = list(wanted), set()
    while waiting:
        collector = waiting.pop()
        if collector.fact not in seen:
            seen.add(collector.fact)
            yield collector
            waiting += [known[need.fact] for need in collector.needs if need.fact in known]


def packed(modules: Iterable[str], beside: Mapping[str, str] | None = None) -> bytes:
    """Return by file name the sources of these modules of ours, of their imports and of the pure packages, and the files `beside`."""
    files = {"__main__.py": _MAIN, **(beside or {})}
    for name in _closure([_PROGRAM, *modules]):
        file = _file(name)
        files[f"verl_doctor/{file.relative_to(TOOLKIT.parent)}"] = file.read_text("utf-8")
    for package in _PURE:
        files.update(_package(package))
    return zlib.compress(json.dumps(files).encode("ascii"), 9)


def _closure(names: Iterable[str]) -> Iterator[str]:
    """Return the modules of `toolkit` with these names, their packages, and those that they import, at any depth."""
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            yield name
            waiting += _imported(name)
            if name != _PACKAGE:
                waiting.append(name.rpartition(".")[0])


@functools.cache
def _imported(name: str) -> tuple[str, ...]:
    """Return the modules of `toolkit` that a module imports. Code that makes changes is only in those parcels that name it."""
    text = _file(name).read_text("utf-8")
    return tuple(other for other in _names_in(text) if name != _PROGRAM or other not in _IN_FEW)


def _names_in(text: str) -> list[str]:
    """Return the full names of the modules of `toolkit` that a source imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            module = str(node.module)
            below = [f"{module}.{alias.name}" for alias in node.names]
            names += [name for name in below if os.path.exists(_file(name))] or [module]
    return names


def _file(name: str) -> Path:
    """Return the source of a module or package of `toolkit`."""
    path = TOOLKIT.joinpath(*name.split(".")[2:])
    return path / "__init__.py" if os.path.isdir(path) else path.with_suffix(".py")


def _package(name: str) -> Iterator[tuple[str, str]]:
    """Return the sources of an installed module or package."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return
    top = Path(spec.origin)
    if not spec.submodule_search_locations:
        yield top.name, top.read_text("utf-8")
        return
    for path in sorted(top.parent.rglob("*.py")):
        yield str(path.relative_to(top.parent.parent)), path.read_text("utf-8")


def _run_settings(run: Session, collection: Collection) -> dict[str, Any]:
    """Return the settings of this run that also apply to the nodes, in JSON types."""
    target = run.target
    model = _model(run, collection)
    paths = {
        "verl": str(target.verl or ""),
        "vllm": str(target.vllm or ""),
        "model": str(model.folder) if model else "",
        "model_by": model.by if model else "",
        "libraries": [[name, str(folder)] for name, folder in target.libraries],
        "files": [str(file) for file in target.files],
        "words": list(target.words),
        "data": [str(file) for file in target.data],
        "gpu_memory": target.gpu_memory,
        "ray_address": target.ray_address and _known_to_all(target.ray_address, collection.get(RayClusters)),
    }
    return {
        "target": paths,
        "cwd": str(run.machine.cwd),
        "marker": run.config.marker,
        "sites": asdict(Sites(run.config.sites, run.config.path)),
    }


def _model(run: Session, collection: Collection) -> NamedModel | None:
    """Return the model's folder on this machine, where the job is started; None for a name on the hub, which each node caches separately."""
    named = named_model(run.machine, run.target, collection.get(Launch), collection.get(Configuration))
    return None if isinstance(named, Unknown) or named.cached else named


def _known_to_all(address: str, clusters: RayClusters | Unknown) -> str:
    """Return the address of a Ray for its nodes: the head's.

    The address that the user gave may be valid on this machine only (127.0.0.1).
    """
    named = None if isinstance(clusters, Unknown) else clusters.chosen
    head = next((node for node in named.alive if node.head), None) if named is not None else None
    return address if head is None else with_port(head.address, int(address.rpartition(":")[2]))
