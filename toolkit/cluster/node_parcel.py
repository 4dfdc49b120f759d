"""The parcel for nodes without verl-doctor: collectors' sources and the pure Python packages they need."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.cluster.packing import Contents, pack
from verl_doctor.toolkit.collectors.api.uses import LibraryUses, VllmUses
from verl_doctor.toolkit.collectors.configuration.config_classes import ConfigClasses
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.demands import Demands
from verl_doctor.toolkit.collectors.configuration.own_files import OwnFiles
from verl_doctor.toolkit.collectors.configuration.registries import VerlRegistries
from verl_doctor.toolkit.collectors.configuration.step_intervals import StepIntervals
from verl_doctor.toolkit.collectors.configuration.validation.validation import Validation
from verl_doctor.toolkit.collectors.installed.environment_place import environment_place
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.adapter_modules import AdapterModules
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.collectors.model.config_entries import ConfigEntries
from verl_doctor.toolkit.collectors.model.model import NamedModel, named_model
from verl_doctor.toolkit.collectors.model.row_arguments import RowArguments
from verl_doctor.toolkit.collectors.network.network import with_port
from verl_doctor.toolkit.collectors.packages.tree_manifest import TreeManifest
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.init_arguments import RayInitArguments
from verl_doctor.toolkit.collectors.variables.program_module import ProgramModule
from verl_doctor.toolkit.collectors.variables.script_python import ScriptPython
from verl_doctor.toolkit.collectors.variables.trackers import Trackers
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.collectors.vllm.engine_arguments import EngineArguments
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
_NOT_SENT = frozenset({"verl_doctor.toolkit.system.secret_forms"})  # what nodes send is masked here
_MAIN = f"import sys\nfrom {_PROGRAM} import main\nmain(*sys.argv[1:])\n"

# Collected only once: the cluster's control store, which every node would query in full, and whole source
# trees, which are the same wherever the same packages are installed, as what they accept of the job's and the
# model's configuration and of the chat template is, and the code of the user's own files. So is what only the
# script's own machine starts: its interpreter, its program, the job's Ray and the trackers.
_ONCE = frozenset(
    {
        AdapterModules,
        ChatTemplate,
        ConfigClasses,
        ConfigEntries,
        Demands,
        EngineArguments,
        LibraryUses,
        OwnFiles,
        ProgramModule,
        RayClusters,
        RayInitArguments,
        RowArguments,
        ScriptPython,
        StepIntervals,
        Trackers,
        TreeManifest,
        Validation,
        VariableReaders,
        VerlRegistries,
        VllmUses,
    }
)


@dataclass(frozen=True)
class Parcel:
    """What is sent to a node: the packed files and the request."""

    content: bytes
    request: Mapping[str, Any]

    def order(self, seconds: float, *, detached: bool) -> bytes:
        """Return the input of `probes.node`.

        The work is limited to `seconds`; a `detached` request leaves its parent.
        """
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
    return Parcel(packed(modules, given=[known for known in collectors if known.fact in given]), request)


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
    beside = [
        path
        for folder in ("checks", "patches")
        for path in sorted([*(top / folder).rglob("*.py"), *(top / folder).glob("data/*.*")])
    ]
    return packed([*collector_modules(), _REPAIR], beside)


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
    """Yield these collectors and those that they depend on, directly or not."""
    known = {collector.fact: collector for collector in every}
    waiting, seen = list(wanted), set()
    while waiting:
        collector = waiting.pop()
        if collector.fact not in seen:
            seen.add(collector.fact)
            yield collector
            waiting += [known[need.fact] for need in collector.needs if need.fact in known]


def packed(modules: Iterable[str], beside: Iterable[Path] = (), given: Iterable[Collector] = ()) -> bytes:
    """Return the sources of these modules and files.

    Collectors of `given` facts are named on the node, never called.
    """
    return pack(
        Contents(
            main=_MAIN,
            modules=frozenset({_PROGRAM, *modules}),
            beside=tuple(beside),
            uncalled=frozenset(
                f"{collector.collect.__module__}.{collector.collect.__name__}" for collector in given
            ),
            unused=_IN_FEW.difference(modules) | _NOT_SENT,
        )
    )


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
    """Return the model's folder on this machine; None for a name on the hub.

    The job is started on this machine. Each node caches a model from the hub separately.
    """
    named = named_model(run.machine, run.target, collection.get(Launch), collection.get(Configuration))
    return None if isinstance(named, Unknown) or named.cached else named


def _known_to_all(address: str, clusters: RayClusters | Unknown) -> str:
    """Return the address of a Ray for its nodes: the head's.

    The address that the user gave may be valid on this machine only (127.0.0.1).
    """
    named = None if isinstance(clusters, Unknown) else clusters.chosen
    head = next((node for node in named.alive if node.head), None) if named is not None else None
    return address if head is None else with_port(head.address, int(address.rpartition(":")[2]))
