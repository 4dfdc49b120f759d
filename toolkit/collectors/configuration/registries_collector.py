"""Collects the names that this verl accepts for the job's settings."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.registries import KEYS, VerlRegistries
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine


@collector(kept=True)
def verl_registries(
    configuration: Configuration,
    trees: VerlTrees,
    machine: Machine,
    interpreter: Interpreter | Unknown,
    launch: Launch | Unknown,
) -> VerlRegistries | Unknown:
    """Read the registries of the imported tree, for a job run by one of verl's own trainers."""
    if not configuration.program.endswith(("/trainer/main_ppo.py", "/trainer/sft_trainer.py")):
        return Absent("the started program is not one of verl's own trainers, and may register further names")
    if not any(configuration.override_of(key) or configuration.own_line(key) for key in KEYS):
        return Absent("the job does not change verl's choices")
    from verl_doctor.toolkit.collectors.configuration.registry_reader import read_registries  # noqa: PLC0415 - only for a job that chooses

    return read_registries(configuration, trees.imported.folder, machine, interpreter, launch)
