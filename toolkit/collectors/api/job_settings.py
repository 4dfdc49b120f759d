"""The settings that decide a job's path: the launch script's, or verl's own defaults without a script."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.api.settings import Settings, switched_on
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.launch.launch import Command
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

_PROGRAM = "verl.trainer.main_ppo"


def settings_of(
    verl: Tree, configuration: Configuration | Unknown, variables: JobVariables | Unknown, machine: Machine
) -> Settings:
    """Return the settings of the job. If its configuration is unknown, only variables decide."""
    given = {} if isinstance(variables, Unknown) else dict(variables.values)
    withheld = frozenset() if isinstance(variables, Unknown) else frozenset(variables.undetermined)
    if isinstance(configuration, Configuration):
        words = [word for word in configuration.overrides if word.fate == "applied" or configuration.refused]
        features = switched_on({word.key: word.value for word in words})
        return Settings(configuration.after, given, withheld, True, configuration.program, features)
    if not isinstance(configuration, Absent):
        return Settings({}, given, withheld)
    defaults = defaults_of(verl, machine)
    return Settings({} if defaults is None else defaults.after, given, withheld)


def defaults_of(verl: Tree, machine: Machine) -> Configuration | None:
    """Return the configuration of verl's trainer without any overrides; None if it cannot be composed."""
    from verl_doctor.toolkit.collectors.configuration.hydra_job import composed  # noqa: PLC0415 - it loads a YAML parser

    found = composed(Command(_PROGRAM, (), "", 0), Path(verl.folder), machine, verl.version)
    return found if isinstance(found, Configuration) and not found.refused else None
