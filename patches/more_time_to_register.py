"""Fix for HOST117: more time for Ray's workers to register."""

from __future__ import annotations

import re

from verl_doctor.checks._ray_needs import REGISTER
from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.fact_job_variables import JobVariables
from verl_doctor.toolkit.rule import Finding

_SECONDS = re.compile(rf"{REGISTER}=(\d+)")


@fix("more-time-to-register", repairs="HOST117", safety="safe", restart="Ray")
def more_time_to_register(finding: Finding, variables: JobVariables) -> list[Change] | Refusal:
    """Give Ray's workers the time to register that the finding has computed. Nothing else changes."""
    if place := variables.places.get(REGISTER):
        return Refusal(f"{place[0]}:{place[1]} sets it, and goes before the shell: change it there")
    seconds = _SECONDS.search(finding.remedy)
    if seconds is None:
        return Refusal("the finding names no time")
    until = "the environment is on a local disk"
    return [SetVariable(REGISTER, seconds[1], finding.message, until, node_only=True)]
