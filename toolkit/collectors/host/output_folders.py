"""Whether the folders that the job writes to can be created.

They are for checkpoints, for Hydra, for cached tables, for trackers, and for Ray's timeline.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import trackers_of, trains
from verl_doctor.toolkit.collectors.launch.launch import (
    Launch,
    changes_folder,
    folder_of,
    may_have_folder,
)
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.system.file_systems import Obstacle, obstacle

HYDRA_FOLDER = "hydra.run.dir"
# The trackers that write into a folder that a variable names, and the variable that names the file itself.
_TRACKERS = (
    ("tensorboard", "TENSORBOARD_DIR", ""),
    ("file", "VERL_FILE_LOGGER_ROOT", "VERL_FILE_LOGGER_PATH"),
)
_KEY = "trainer.default_local_dir"
BACKUP = "trainer.default_hdfs_dir"
_FREQUENCY = "trainer.save_freq"
TIMELINE = "ray_kwargs.timeline_json_file"
_PROJECT, EXPERIMENT = "trainer.project_name", "trainer.experiment_name"
_SAMPLES = ("trainer.rollout_data_dir", "trainer.validation_data_dir")


@dataclass(frozen=True)
class OutputFolder:
    """The `path` as the job names it, the nearest existing folder `above`, and why it is not writable."""

    path: str
    above: str
    trouble: Obstacle = ""


@dataclass(frozen=True)
class CheckpointFolder(OutputFolder):
    """The folder for the job's checkpoints."""


@dataclass(frozen=True)
class HydraFolder(OutputFolder):
    """The folder in which Hydra writes before the program begins."""


@dataclass(frozen=True)
class DatasetsCache(OutputFolder):
    """The folder in which `datasets` keeps the tables that it reads, and the variable that sets it."""

    variable: str = ""


@dataclass(frozen=True)
class MetricsFile:
    """The file to which the tracker `file` writes.

    With it come its folder, if that does not exist, and the variable or key that names the file. `makeable`:
    the user can make that folder.
    """

    path: str
    missing_folder: str = ""
    named_by: str = ""
    makeable: bool = False


@dataclass(frozen=True)
class SamplesFolder(OutputFolder):
    """The folder to which the trainer writes generated texts, and the key that sets it."""

    key: str = ""


@dataclass(frozen=True)
class BackupFolder(OutputFolder):
    """The folder to which fine-tuning copies each checkpoint."""


@dataclass(frozen=True)
class TimelineFile:
    """The file into which verl writes Ray's timeline after training, and its folder if missing.

    `makeable`: the user can make that folder.
    """

    path: str
    missing_folder: str = ""
    makeable: bool = False


@dataclass(frozen=True)
class TrackerFolder(OutputFolder):
    """The folder to which a tracker writes, and the variable that sets it."""

    tracker: str = ""
    variable: str = ""


@collector(timeout=5)
def checkpoint_folder(
    configuration: Configuration, launch: Launch, machine: Machine
) -> CheckpointFolder | Unknown:
    """Check the nearest existing folder, if the job saves checkpoints below an absolute path.

    Fine-tuning saves its last step in any case.
    """
    frequency = configuration.number(_FREQUENCY) if configuration.has("actor_rollout_ref") else 1
    if not frequency or frequency <= 0:
        return Absent("the job saves no checkpoints")
    path = configuration.get(_KEY)
    if not isinstance(path, str) or not path.startswith("/") or configuration.override_of(_KEY) is None:
        return Absent("the job names no absolute path for checkpoints")
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    return CheckpointFolder(path, *obstacle(machine, path))


@collector(timeout=5)
def backup_folder(configuration: Configuration, launch: Launch, machine: Machine) -> BackupFolder | Unknown:
    """Check the nearest existing folder for the checkpoint copies of a fine-tuning job.

    This applies if the job copies its checkpoints below an absolute path.
    """
    path = configuration.get(BACKUP)
    if not configuration.program.endswith("/trainer/sft_trainer.py") or not isinstance(path, str):
        return Absent("the job copies no checkpoints")
    if not path.startswith("/") or "${" in path:
        return Absent("the job names no absolute path for copies of checkpoints")
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    return BackupFolder(path, *obstacle(machine, path))


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
    return HydraFolder(word.value, *obstacle(machine, word.value))


@collector(timeout=5)
def datasets_cache(
    configuration: Configuration, launch: Launch, job: JobVariables, machine: Machine
) -> DatasetsCache | Unknown:
    """Check the nearest existing folder of the cache of `datasets`.

    This applies if the job reads its data with `datasets` and a variable names an absolute path.

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
                return Absent(f"{variable} is not a known absolute path")
            above, trouble = obstacle(machine, path)
            return DatasetsCache(
                path, above, "" if above == path and os.path.isdir(machine.at(path)) else trouble, variable
            )
    return Absent("no variable names a folder for datasets")


@collector(timeout=5)
def tracker_folder(
    configuration: Configuration, launch: Launch, job: JobVariables, machine: Machine
) -> TrackerFolder | Unknown:
    """Check the nearest existing folder for each tracker of the job: the first with an obstacle.

    Only trackers whose variable names an absolute path count.
    """
    wanted = trackers_of(configuration)
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    found = []
    for tracker, variable, instead in _TRACKERS:
        path = job.get(variable)
        unsure = any(
            setting.name in (variable, instead) and setting.conditional for setting in launch.settings
        )
        unsure = (
            unsure or bool({variable, instead} & set(job.undetermined)) or bool(instead and job.has(instead))
        )
        if tracker in wanted and not unsure and path.startswith("/") and "$" not in path:
            found.append(TrackerFolder(path, *obstacle(machine, path), tracker=tracker, variable=variable))
    nothing = Absent("no tracker of the job writes to a known absolute path")
    return next((folder for folder in found if folder.trouble), next(iter(found), nothing))


@collector(timeout=5)
def metrics_file(
    configuration: Configuration, launch: Launch, job: JobVariables, machine: Machine
) -> MetricsFile | Unknown:
    """Look for the folder of the file for the tracker `file`.

    The tracker creates the folder of the project. It creates none for a path or a slash in the experiment's
    name.
    """
    names = (*_TRACKERS[1][1:], "HOME")
    unsure = any(setting.name in names and setting.conditional for setting in launch.settings)
    if "file" not in trackers_of(configuration) or unsure or set(names) & set(job.undetermined):
        return Absent("the file of the tracker is not known, or there is none")
    whole = job.get(_TRACKERS[1][2]) if job.has(_TRACKERS[1][2]) else None
    root = job.get(_TRACKERS[1][1]) if job.has(_TRACKERS[1][1]) else "."
    project, name = (configuration.get(key) for key in (_PROJECT, EXPERIMENT))
    if whole is None and not (isinstance(project, str) and isinstance(name, str)):
        return Absent("the names of the project and of the experiment are not known")
    path = whole if whole is not None else f"{root}/{project}/{name}.jsonl"
    makes = "" if whole is not None else f"{root}/{project}"
    # Of a relative path, only a job without Ray starts where its processes write.
    elsewhere = configuration.has("actor_rollout_ref") or configuration.override_of("hydra.job.chdir")
    moves = not path.startswith("/") and (changes_folder(launch) or elsewhere)
    if launch.is_elsewhere or moves or not path or "$" in path or path.startswith("~"):
        return Absent("the folder or the machine on which the job starts is not known")
    here = folder_of(launch, machine.cwd)
    folder = os.path.normpath((here / path).parent)
    hydra = configuration.override_of(HYDRA_FOLDER)
    others = [hydra.value if hydra else None, *(configuration.get(key) for key in (_KEY, *_SAMPLES))]
    made = [makes, job.get("TENSORBOARD_DIR"), *(other for other in others if isinstance(other, str))]
    is_made = any(f"{os.path.normpath(here / other)}/".startswith(f"{folder}/") for other in made if other)
    exists = is_made or os.path.isdir(machine.at(folder)) or may_have_folder(launch, folder)
    key = _TRACKERS[1][2] if whole is not None else EXPERIMENT
    missing = "" if exists else folder
    return MetricsFile(os.path.normpath(here / path), missing, key, _is_makeable(machine, missing))


@collector(timeout=5)
def samples_folder(configuration: Configuration, launch: Launch, machine: Machine) -> SamplesFolder | Unknown:
    """Check the nearest existing folder for each kind of generated texts: the first with an obstacle.

    Only kinds that go to an absolute path count.
    """
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    named = ((key, configuration.get(key)) for key in _SAMPLES)
    found = [
        SamplesFolder(path, *obstacle(machine, path), key=key)
        for key, path in named
        if isinstance(path, str) and path.startswith("/")
    ]
    nothing = Absent("the job names no absolute path for generated texts")
    return next((folder for folder in found if folder.trouble), next(iter(found), nothing))


@collector(timeout=5)
def timeline_file(configuration: Configuration, launch: Launch, machine: Machine) -> TimelineFile | Unknown:
    """Look for the folder: Ray opens the file and creates no folder for it (`ray.timeline`)."""
    path = configuration.get(TIMELINE)
    if not isinstance(path, str) or not path or "${" in path:
        return Absent("the job writes no timeline")
    if launch.is_elsewhere or (changes_folder(launch) and not path.startswith("/")):
        return Absent("the folder or the machine on which the job starts is not known")
    folder = os.path.normpath((folder_of(launch, machine.cwd) / path).parent)
    missing = "" if os.path.isdir(folder) or may_have_folder(launch, folder) else folder
    return TimelineFile(path, missing, _is_makeable(machine, missing))


def _is_makeable(machine: Machine, folder: str) -> bool:
    """Return whether the user can make a folder.

    If only the root exists, a file system may not be mounted here.
    """
    above, trouble = obstacle(machine, folder) if folder else ("/", "")
    return above != "/" and not trouble
