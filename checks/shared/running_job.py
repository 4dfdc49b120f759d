"""Shared by the rules about a job that runs already, on a cluster that the job of a launch script would join."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Severity


def of_another_job(launch: Launch | Unknown) -> Severity | None:
    """The rule's own severity, or a warning where a launch script is named: its job is another and need not end with this one."""
    return "warning" if isinstance(launch, Launch) else None
