"""The program in the parcel for a node: it collects the requested facts and writes them to a file.

It is the `__main__` of the unpacked folder. The node's own Python (`probes.node`) runs it with the paths of
the request and the response as arguments.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.console.masked import masked
from verl_doctor.toolkit.engine import factsfile
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Broken, Collector, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.system.restore import restored
from verl_doctor.toolkit.system.sites import Sites
from verl_doctor.toolkit.target import Target

REPAIRS = "repairs"
"""The key in the response that replaces the facts if a repair was requested."""
UNDONE = "undone"
"""The same if repairs are undone."""
WARMED = "warmed"
"""The same for a warm-up."""


def main(request_path: str, output_path: str) -> None:
    """Process one request."""
    request = json.loads(Path(request_path).read_text("ascii"))
    _lend_psutil()
    machine = Machine(cwd=Path(request["cwd"]))
    # Temporary files are removed with the parcel's folder, even if this process is killed.
    tempfile.tempdir = str(Path(output_path).parent)
    os.environ["XDG_CACHE_HOME"] = str(Path(output_path).with_name("cache"))
    Path(output_path).write_text(json.dumps(respond(request, machine)), "ascii")


def respond(request: Mapping[str, Any], machine: Machine) -> dict[str, str]:
    """Return what was requested: facts, or the result of "repair", "undo" or "warm"."""
    if "warm" in request:
        from verl_doctor.toolkit.cluster.node_warm import warmed  # noqa: PLC0415 - it is in few parcels

        return {WARMED: packed_text(json.dumps(warmed(machine, request["warm"], request["seconds"])))}
    if "repair" in request:
        from verl_doctor.toolkit.cluster.node_repair import repairs  # noqa: PLC0415 - it is in few parcels

        done = repairs(machine, _target(request["target"]), request["marker"], request["repair"])
        return {REPAIRS: packed_text(json.dumps(done))}
    if "undo" in request:
        from verl_doctor.toolkit.cluster.node_undo import undone  # noqa: PLC0415 - it is in few parcels

        outcome = undone(machine, _target(request["target"]), request["undo"])
        return {UNDONE: packed_text(json.dumps(outcome))}
    return entries(request, machine)


def entries(request: Mapping[str, Any], machine: Machine) -> dict[str, str]:
    """Return the facts by name, each as an entry of a facts file, packed."""
    collectors = tuple(_collectors(request["modules"]))
    wanted = set(request["facts"])
    given = {
        Machine: machine,
        Target: _target(request["target"]),
        Marker: Marker(request["marker"]),
        Sites: restored(Sites, request.get("sites", {})),
        **_given(request["given"], collectors),
    }
    collection = Collection(collectors, given)
    requested = [collector for collector in collectors if collector.name in wanted]
    collection.start(collector.fact for collector in requested)
    return {collector.name: packed(_plain(collection.get(collector.fact))) for collector in requested}


def packed(fact: Any) -> str:
    """Return an entry as canonical text, so equal entries of many nodes are read once."""
    return packed_text(json.dumps(masked(factsfile.entry(fact)), sort_keys=True, separators=(",", ":")))


def packed_text(text: str) -> str:
    """Pack JSON as ASCII text, to be embedded in JSON."""
    return base64.b64encode(zlib.compress(text.encode("ascii"), 6)).decode("ascii")


def unpacked(text: str) -> str:
    """Return the entry's JSON. Raises ValueError or zlib.error if it is damaged."""
    return zlib.decompress(base64.b64decode(text)).decode("ascii")


def _given(entries: Mapping[str, Any], collectors: tuple[Collector, ...]) -> dict[type, Any]:
    """Return the facts that come with the request: the launch files are on the driver's node."""
    mine = [collector for collector in collectors if collector.name in entries]
    return factsfile.facts_of(entries, mine, "the request")


def _plain(fact: Any) -> Any:
    """Mark facts for which this node lacks a package as not collected, instead of broken."""
    if isinstance(fact, Broken) and fact.error == ModuleNotFoundError.__name__:
        return Unknown(f"{fact.message} on that node")
    return fact


def _collectors(modules: list[str]) -> list[Collector]:
    found = []
    for name in modules:
        members = vars(importlib.import_module(name)).values()
        found += [member for member in members if isinstance(member, Collector)]
    return list(dict.fromkeys(found))


def _target(fields: Mapping[str, Any]) -> Target:
    """Return the target with the driver node's paths, checked here, and this process's interpreter."""

    def path(name: str) -> Path | None:
        return Path(fields[name]) if fields[name] else None

    return Target(
        python=Path(sys.executable),
        chosen_by="--python",
        libraries=tuple((name, Path(folder)) for name, folder in fields["libraries"]),
        files=tuple(map(Path, fields["files"])),
        words=tuple(fields["words"]),
        data=tuple(map(Path, fields["data"])),
        verl=path("verl"),
        vllm=path("vllm"),
        model=path("model"),
        model_by=fields["model_by"],
        ray_address=fields["ray_address"],
        gpu_memory=fields.get("gpu_memory", 0),
    )


def _lend_psutil() -> None:
    """Make Ray's bundled psutil (python/ray/thirdparty_files) importable in environments without psutil."""
    with contextlib.suppress(ImportError, ValueError):
        if find_spec("psutil") is None and (ray := find_spec("ray")) and ray.origin:
            sys.path.append(str(Path(ray.origin).with_name("thirdparty_files")))
