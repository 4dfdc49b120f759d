"""Whether the folder for the job's checkpoints can be created."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import trains
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.system.file_systems import file_system_of, may_write

HYDRA_FOLDER = "hydra.run.dir"
_KEY = "trainer.default_local_dir"
_FREQUENCY = "trainer.save_freq"
_OF_THE_KERNEL = frozenset({"proc", "sysfs"})

Trouble = Literal["", "a file is in the way", "no permission to write", "read-only", "of the kernel"]


@dataclass(frozen=True)
class CheckpointFolder:
    """The `path` as the job names it, the nearest existing folder `above`, and why nothing can be written in it."""

    path: str
    above: str
    trouble: Trouble = ""


@collector(timeout=5)
def checkpoint_folder(
    configuration: Configuration, launch: Launch, machine: Machine
) -> CheckpointFolder | Unknown:
    """Check the nearest existing folder, if the job saves checkpoints below an absolute path."""
    frequency = configuration.number(_FREQUENCY)
    if not frequency or frequency <= 0:
        return Absent("the job saves no checkpoints")
    path = configuration.get(_KEY)
    if not isinstance(path, str) or not path.startswith("/") or configuration.override_of(_KEY) is None:
        return Absent("the job names no absolute path for checkpoints")
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    return CheckpointFolder(path, *_above(path, machine))


@dataclass(frozen=True)
class HydraFolder:
    """Like `CheckpointFolder`, for the folder in which Hydra writes before the program begins."""

    path: str
    above: str
    trouble: Trouble = ""


@collector(timeout=5)
def hydra_folder(configuration: Configuration, launch: Launch, machine: Machine) -> HydraFolder | Unknown:
    """Check the nearest existing folder, if the command names an absolute one for Hydra."""
    word = configuration.override_of(HYDRA_FOLDER)
    if (
        word is None
        or not isinstance(word.value, str)
        or not word.value.startswith("/")
        or "${" in word.value
    ):
        return Absent("the job names no absolute folder for Hydra")
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    return HydraFolder(word.value, *_above(word.value, machine))


@dataclass(frozen=True)
class DatasetsCache:
    """Like `CheckpointFolder`, for the folder in which `datasets` keeps the tables that it reads, and the variable that sets it."""

    path: str
    above: str
    trouble: Trouble = ""
    variable: str = ""


@collector(timeout=5)
def datasets_cache(
    configuration: Configuration, launch: Launch, job: JobVariables, machine: Machine
) -> DatasetsCache | Unknown:
    """Check the nearest existing folder, if the job reads its data with `datasets` and a variable names an absolute path.

    A folder that exists may hold all that the job needs, even if nothing can be added.
    """
    own_class = configuration.get("data.custom_cls.path") not in (None, MISSING)
    if not configuration.has("actor_rollout_ref") or not trains(configuration) or own_class:
        return Absent("the job does not read its data with datasets")
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    for variable, below in (("HF_DATASETS_CACHE", ""), ("HF_HOME", "datasets")):
        if job.has(variable):
            path = os.path.normpath(Path(job.get(variable), below))
            unsure = any(setting.name == variable and setting.conditional for setting in launch.settings)
            if unsure or variable in job.undetermined or not path.startswith("/") or "$" in path:
                return Absent(f"{variable} is no known absolute path")
            above, trouble = _above(path, machine)
            return DatasetsCache(
                path, above, "" if above == path and os.path.isdir(machine.at(path)) else trouble, variable
            )
    return Absent("no variable names a folder for datasets")


def _above(path: str, machine: Machine) -> tuple[str, Trouble]:
    real = machine.at(path)
    there = next(folder for folder in (real, *real.parents) if os.path.lexists(folder))
    above = f"/{there.relative_to(machine.root)}" if there != machine.root else "/"
    return above, _trouble(there, above, machine)


def _trouble(folder: Path, above: str, machine: Machine) -> Trouble:
    if not os.path.isdir(folder):
        return "a file is in the way"
    system = file_system_of(machine, above)
    if system is not None and system.kind in _OF_THE_KERNEL:
        return "of the kernel"
    if system is not None and system.read_only:
        return "read-only"
    return "" if may_write(folder) else "no permission to write"
