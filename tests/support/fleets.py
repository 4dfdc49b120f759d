"""Clusters of recorded machines, with values that always differ between nodes."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from support.machine_facts import MACHINES
from verl_doctor.toolkit.cluster.node_response import NodeResponse

Entries = dict[str, Any]
Edit = Callable[[Entries], None]


@functools.cache
def texts(machine: str = "h200-with-job") -> Mapping[str, str]:
    """Return the entries of a recorded machine in the form of a node's response."""
    facts = json.loads((MACHINES / f"{machine}.json").read_text("utf-8"))["facts"]
    return {name: json.dumps(entry) for name, entry in facts.items()}


def node(name: str, *edits: Edit, seed: int = 0, machine: str = "h200-with-job") -> NodeResponse:
    """One node: its own name, address, GPUs, processes, and what is free at the moment; then `edits` of its facts.

    An edit changes the entries of the facts, each without its "is".
    """
    chance = random.Random(f"{name} {seed}")
    address = f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
    changed = _Opened(texts(machine))
    _make_its_own(changed, name, address, chance)
    for edit in edits:
        edit(changed)
    return NodeResponse(name, address, changed.texts(), seconds=chance.uniform(0.5, 3))


def dead(name: str, reason: str = "it did not tell its facts within 20 s") -> NodeResponse:
    """Return a node that did not respond."""
    return NodeResponse(name, "10.9.9.9", missing=reason)


def with_version(package: str, version: str) -> Edit:
    """Another version of a package."""

    def edit(facts: Entries) -> None:
        for distribution in facts["Packages"]["distributions"]:
            if distribution["name"] == package:
                distribution["version"] = version

    return edit


def with_value(fact: str, path: str, value: Any) -> Edit:
    """Another value at a path in a fact, as in `devices.0.mig`."""

    def edit(facts: Entries) -> None:
        *steps, last = (int(step) if step.isdecimal() else step for step in path.split("."))
        place = facts[fact]
        for step in steps:
            place = place[step]
        place[last] = value

    return edit


def numbered(count: int, begin: int = 1) -> Iterator[str]:
    """Names of nodes."""
    return (f"node{number:05}" for number in range(begin, begin + count))


class _Opened(dict[str, Any]):
    """The facts of a node, parsed on access. Missing or unknown facts are empty."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__()
        self._texts = texts

    def __missing__(self, name: str) -> Any:
        self[name] = json.loads(self._texts.get(name, "{}")).get("is", {})
        return self[name]

    def texts(self) -> Mapping[str, str]:
        touched = {name: json.dumps({"is": value}) for name, value in self.items() if value}
        return {**self._texts, **touched}


def _make_its_own(facts: Entries, name: str, address: str, chance: random.Random) -> None:
    if memory := facts["HostMemory"]:
        memory["available"] = int(memory["total"] * chance.uniform(0.6, 0.9))
        memory["committed"] = int(memory["total"] * chance.uniform(0.1, 0.2))
    for folder in facts["Folders"].get("folders", ()):
        folder["free"] = int(folder["size"] * chance.uniform(0.4, 0.8))
    for index, device in enumerate(facts["Gpus"].get("devices", ())):
        device["uuid"] = f"GPU-{chance.getrandbits(32):08x}-{index:04}"
        device["temperature"] = chance.randrange(28, 60)
    if shared := facts["SharedMemory"]:
        shared["free"] = int(shared["size"] * chance.uniform(0.8, 1))
    if limits := facts["HostLimits"]:
        limits["tasks"] = chance.randrange(300, 900)
        limits["all_tasks"] = chance.randrange(1000, 3000)
        limits["shell"]["pid"] = chance.randrange(100, 4_000_000)
    for listener in facts["Ports"].get("listeners", ()):
        listener["pid"] = chance.randrange(100, 4_000_000)
    if network := facts["Network"]:
        network["host"]["name"] = name
        network["host"]["addresses"] = [address]
    if clock := facts["Clock"]:
        clock["now"] += chance.uniform(0, 2)
        clock["monotonic"] = chance.uniform(1e4, 1e7)
    if variables := facts["Variables"]:
        variables["values"]["HOSTNAME"] = name
