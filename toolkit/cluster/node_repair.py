"""The part of the parcel that repairs the environment of its node, like `fix --apply` there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.target import Target


def repairs(machine: Machine, target: Target, marker: str, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Carry out the safe repairs with the journal on this node, and prove each by a new examination.

    Return their results.
    """
    selection = Selection(tuple(wanted["select"]), tuple(wanted["ignore"]))
    run = Session(machine, target, Config(marker=marker), registry.load(), selection)
    found = examine(Request(run))
    report = repair.carry_out(run, found.facts, found.report, unsafe=wanted["unsafe"], in_place=True)
    return [asdict(repair) for repair in report.repairs or ()]
