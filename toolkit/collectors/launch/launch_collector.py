"""Collects what the launch files set and start."""

from __future__ import annotations

from functools import partial

from verl_doctor.toolkit.collectors.launch.launch import Launch, load_text
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target


@collector(kept=True)
def launch(target: Target, machine: Machine) -> Launch | Unknown:
    """Read the given launch files."""
    if not target.files and not target.words:
        return Absent("no launch script was named: verl-doctor check LAUNCH_SCRIPT reads one")
    from verl_doctor.toolkit.collectors.launch.files import read_launch  # noqa: PLC0415 - only for a launch file that was named

    return read_launch(target, machine, partial(load_text, planned=machine.planned))
