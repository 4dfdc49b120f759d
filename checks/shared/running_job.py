"""Shared by the rules about a job already running on a cluster that the launch script's job would join."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Severity


def of_another_job(launch: Launch | Unknown) -> Severity | None:
    """The rule's own severity (None), or a warning if a launch script is given.

    The script's job is another, which need not fail with this one.
    """
    return "warning" if isinstance(launch, Launch) else None
