"""Recorded machines, sound or with a fault, judged by the rules about machines."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from support.places import MACHINES
from verl_doctor.toolkit.collectors.gpu.gpus import Fabric, Gpus, Peers
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.engine import factsfile, registry
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import DEEP, Selection, judge
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.result import CheckResult

_FAMILIES = ("CUDA", "HOST", "NET", "ENV")
_TODAY = date(2026, 11, 21)

Facts = Mapping[type, Any]
Edits = Mapping[type, Any]
"""For each fact a replacement, or a function that computes it from the recorded one."""


@functools.cache
def known() -> Registry:
    """Return all rules and collectors, loaded once."""
    return registry.load()


@functools.cache
def machine(name: str) -> Facts:
    """Return the facts of a recorded machine."""
    return factsfile.load(MACHINES / f"{name}.json", known().collectors)


def edited(facts: Facts, edits: Edits) -> Facts:
    """Return the facts with some of them replaced."""
    return {**facts, **{fact: edit(facts[fact]) if callable(edit) else edit for fact, edit in edits.items()}}


def at(path: str, value: Any) -> Any:
    """An edit of the value at a path in a fact, as in `devices.0.mig`."""
    return functools.partial(_changed, steps=tuple(path.split(".")), value=value)


def _changed(part: Any, steps: tuple[str, ...], value: Any) -> Any:
    if not steps:
        return value
    step, *others = steps
    if isinstance(part, tuple):
        index = int(step)
        return (*part[:index], _changed(part[index], tuple(others), value), *part[index + 1 :])
    if isinstance(part, Mapping):
        return {**part, step: _changed(part.get(step), tuple(others), value)}
    return replace(part, **{step: _changed(getattr(part, step), tuple(others), value)})


def judged(facts: Facts) -> tuple[CheckResult, ...]:
    """Return the results of the rules about machines, including those of `--deep`, but not those that compare machines."""
    collection = Collection(known().collectors, facts)
    selection = Selection(select=_FAMILIES, costs=frozenset({"instant"}) | DEEP)
    checks = [check for check in known().checks if check.cost != "cluster"]
    return judge(checks, collection, selection, today=_TODAY)


def healthy_node() -> Facts:
    """Return the recorded H200 node after the sampler was compiled: no rule reports anything."""
    return edited(machine("h200-with-job"), {FlashInfer: at("built", ("sampling",))})


def eight_gpus() -> Facts:
    """Return the H200 node as a whole one of its kind: eight GPUs behind NVSwitches, as the two of h200-two-gpus.json are."""
    facts = healthy_node()
    one = facts[Gpus].devices[0]
    fabric = Fabric("completed")
    devices = tuple(
        replace(one, index=index, uuid=f"GPU-0000000{index}", links=18, links_active=18, fabric=fabric)
        for index in range(8)
    )
    peers = tuple(
        Peers(first, second, "ok", nvlink=True) for first in range(8) for second in range(8) if first < second
    )
    gpus = replace(facts[Gpus], devices=devices, peers=peers)
    shares = facts[Resources].gpus * 8
    return edited(
        facts,
        {
            Gpus: gpus,
            VisibleDevices: VisibleDevices(tuple(range(8))),
            Resources: replace(facts[Resources], gpus=shares),
        },
    )
