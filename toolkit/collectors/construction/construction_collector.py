"""Builds the job with verl's own code, as far as no GPU is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import (
    UNDETERMINED_VALUE,
    Configuration,
    OverrideWord,
)
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.construction.construction import BAD, Built, Construction
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import (
    Launch,
    changes_folder,
    folder_of,
    load_text,
    may_be_made,
    written_by,
)
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine

_PATHS = ("path", "_files")  # endings of keys
_BETWEEN_PATHS = re.compile(r"[=,\[\]'\"\s]+")
_LIMIT = 240.0  # seconds: it imports verl, torch and vLLM, perhaps from a slow disk

# Names that a run chooses for itself, often with a timestamp. Nothing built here depends on them.
_OF_THE_RUN = frozenset(
    f"trainer.{name}"
    for name in (
        "project_name",
        "experiment_name",
        "default_local_dir",
        "default_hdfs_dir",
        "rollout_data_dir",
        "validation_data_dir",
    )
)
_MODEL = "actor_rollout_ref.model"
_REWARD = ("reward.custom_reward_function", "custom_reward_function")
_USUAL: Mapping[str, tuple[str, ...]] = {
    "model": (f"{_MODEL}.path",),
    "critic's model": ("critic.model.path", "algorithm.adv_estimator"),
    "data sets": ("data.train_files", "data.val_files"),
    "first batch": ("data.train_files",),
    "first validation batch": ("data.val_files",),
    "agent loops": (f"{_MODEL}.path",),
    "reward manager": tuple(f"{key}.path" for key in _REWARD),
    "reward": tuple(f"{key}.path" for key in _REWARD),
    "weights": (f"{_MODEL}.path",),
    "trackers": ("trainer.logger",),
    "resuming": ("trainer.resume_from_path", "trainer.resume_mode", "trainer.default_local_dir"),
    "rollout classes": ("actor_rollout_ref.rollout.name",),
}


@collector(timeout=_LIMIT + 20)
def construction(
    configuration: Configuration,
    launch: Launch,
    interpreter: Interpreter,
    trees: VerlTrees,
    variables: Variables,
    job: JobVariables,
    processes: JobProcesses | Unknown,
    machine: Machine,
) -> Construction | Unknown:
    """Build the job in a child with the job's own words and variables. Unknown words prevent it."""
    from verl_doctor.toolkit.collectors.construction.child import constructed  # noqa: PLC0415 - only where it is built

    request = request_of(configuration, launch, trees, machine, processes)
    if isinstance(request, Unknown):
        return request
    child = replace(machine, environ=child_environ(machine, variables, job))
    found = constructed(child, interpreter.executable, request, _LIMIT)
    return found if isinstance(found, Unknown) else judged(found, configuration, launch)


def request_of(
    configuration: Configuration,
    launch: Launch,
    trees: VerlTrees,
    machine: Machine,
    processes: JobProcesses | Unknown,
) -> dict[str, Any] | Unknown:
    """What the child is to build, or why it cannot be built.

    Where a launcher starts the `processes`, its numbers count.
    """
    if configuration.refused:
        return Unknown(f"Hydra does not compose the configuration: {configuration.refused}")
    undetermined = [
        word
        for word in configuration.overrides
        if word.value == UNDETERMINED_VALUE and not _is_of_the_run(word)
    ]
    if not configuration.complete or undetermined:
        what = f": {undetermined[0].text}" if undetermined else ""
        return Unknown(f"a part of the command could not be determined, so the job cannot be built{what}")
    if trees.imported.module != "verl":
        return Unknown(
            f"{trees.imported.module} is a tree inside another package, from which nothing is built"
        )
    if launch.command is None:
        return Unknown("no command that starts verl was found")
    if first := next(_made_first(configuration, launch, machine), ""):
        return Unknown(
            f"{first} does not exist yet: a command of the script may create it before the job starts"
        )
    if changed := next(_written_first(configuration, launch, machine), ""):
        return Unknown(f"the script writes {changed} before the job starts, and it is not there yet")
    folder = folder_of(launch, machine.cwd)
    if launch.command.folder and not os.path.isdir(folder):
        return Unknown(f"the job starts in {folder}, which does not exist yet")
    module = launch.command.module
    if module.endswith(".py") or "/" in module:
        module = configuration.program
    return {
        "folder": str(folder),
        "tree": str(Path(trees.imported.folder).parent),
        "module": module,
        "config_folder": configuration.folder,
        "config_name": configuration.name,
        "config_added": configuration.added_folder,
        "overrides": [_override(word) for word in configuration.overrides],
        "environ": {},
        "launched": _launched(processes),
    }


def _launched(processes: JobProcesses | Unknown) -> tuple[int, int] | None:
    """Return how many processes a launcher starts, and how many per node; None if the settings decide it."""
    if isinstance(processes, Unknown):
        return None
    world = processes.world_size({"nnodes": "1", "nproc_per_node": "1"})
    return (world, int(processes.options.get("nproc_per_node") or 1)) if world else None


def _made_first(configuration: Configuration, launch: Launch, machine: Machine) -> Iterator[str]:
    """Yield the missing files of the job that the script may create first.

    A relative path may be a name on the model hub.
    """
    here = folder_of(launch, machine.cwd)
    for word in configuration.overrides:
        values = word.value if isinstance(word.value, list) else [word.value]
        for value in values if word.key.endswith(_PATHS) else ():
            if isinstance(value, str) and "://" not in value and "${" not in value:
                path = os.path.normpath(here / machine.expanded(value))
                certain = value.startswith(("/", "~", ".")) or word.key.endswith("_files")
                if (
                    (certain or path in launch.made)
                    and not os.path.exists(path)
                    and may_be_made(launch, path)
                ):
                    yield path


def _written_first(configuration: Configuration, launch: Launch, machine: Machine) -> Iterator[str]:
    """Yield the files to which the script writes what they do not have.

    They are in the configuration's folder, or a setting names them.
    """
    here = folder_of(launch, machine.cwd)
    words = launch.command.words if launch.command else ()
    parts = (part for word in words for part in _BETWEEN_PATHS.split(word.text or "") if part)
    places = (configuration.folder, *(os.path.normpath(here / machine.expanded(part)) for part in parts))
    for path, text in written_by(launch).items():
        named = any(path == place or path.startswith(f"{place}/") for place in places)
        if named and (text is None or load_text(path) != text):
            yield path


def judged(found: Construction, configuration: Configuration, launch: Launch) -> Construction:
    """Return the construction, with each fault matched to the setting that caused it."""
    elsewhere = changes_folder(launch)
    return replace(
        found,
        stages=tuple(_placed(_fair(built, elsewhere=elsewhere), configuration) for built in found.stages),
    )


def _is_of_the_run(word: OverrideWord) -> bool:
    return word.key in _OF_THE_RUN


def _override(word: OverrideWord) -> str:
    """A word for Hydra; an unknown name may be replaced by any name."""
    if word.value == UNDETERMINED_VALUE and _is_of_the_run(word):
        return f"{word.sign}{word.key}=undetermined"
    return word.text


def _fair(built: Built, *, elsewhere: bool) -> Built:
    """Do not judge a missing file if the script may start the job in another folder."""
    if built.ended == "breaks" and elsewhere and built.kind in ("FileNotFoundError", "ModuleNotFoundError"):
        return replace(
            built, ended="not judged", text=f"the script changes the folder: {built.kind}: {built.text}"
        )
    return built


def _placed(built: Built, configuration: Configuration) -> Built:
    """A failed stage, with the setting that caused it."""
    if built.ended not in BAD:
        return built
    from verl_doctor.toolkit.collectors.construction.setting import setting_of  # noqa: PLC0415 - only where something is wrong

    # An import that fails is rarely due to the stage's usual settings, unless its message names one.
    usual = () if built.kind in ("ImportError", "ModuleNotFoundError") else _USUAL.get(built.stage, ())
    key, word = setting_of(built.text, built.key, usual, configuration)
    if word is None:
        return replace(built, key=key)
    return replace(built, key=key, word=word.text, path=word.path, line=word.line)
