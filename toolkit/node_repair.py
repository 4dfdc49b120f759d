"""The part of the parcel that repairs the environment of the node on which it runs, as `fix --apply` would there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from verl_doctor.toolkit import registry, repair
from verl_doctor.toolkit.config import Config
from verl_doctor.toolkit.judge import Selection
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.target import Target


def repairs(machine: Machine, target: Target, marker: str, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Carry the safe repairs out, each proven by a fresh look, with the journal on this node; what became of each."""
    selection = Selection(tuple(wanted["select"]), tuple(wanted["ignore"]))
    run = Session(machine, target, Config(marker=marker), registry.load(), selection)
    collection = run.look()
    report = repair.carry_out(run, collection, run.check(collection), unsafe=wanted["unsafe"])
    return [asdict(one) for one in report.repairs or ()]
