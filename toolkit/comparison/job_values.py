"""The variables and the configuration of a job as values to compare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from verl_doctor.toolkit.cluster.fleet_subjects import Values
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.comparison import meaning
from verl_doctor.toolkit.facts import Unknown


def read_job_variables(
    job: JobVariables, interpreter: Interpreter | Unknown, trees: VerlTrees | Unknown
) -> Values:
    """Return the variables as the workers will have them.

    Folders of the environment and of the tree, which differ by machine, get fixed names.
    """
    return _named(job.values, job.undetermined, interpreter, trees)


def read_variables(
    variables: Variables, interpreter: Interpreter | Unknown, trees: VerlTrees | Unknown
) -> Values:
    """Return the variables of the shell, with the same names for folders."""
    return _named(variables.values, variables.withheld, interpreter, trees)


def decided_elsewhere(shell: Variables | Unknown, job: JobVariables | Unknown) -> frozenset[str]:
    """Return the variables that differ between the job and the shell: its launch files or verl set them."""
    if isinstance(shell, Unknown) or isinstance(job, Unknown):
        return frozenset()
    return frozenset(name for name, value in job.values.items() if shell.values.get(name) != value)


def unread_variables(*sides: VariableReaders | Unknown) -> frozenset[str]:
    """Return the variables that no installed package reads, on every side where that is known."""
    known = [variable for side in sides if not isinstance(side, Unknown) for variable in side.variables]
    return frozenset(reading.name for reading in known if reading.dead) - {
        reading.name for reading in known if not reading.dead
    }


def read_configuration(configuration: Configuration) -> Values:
    """Return each key of the composed configuration."""
    return {
        ("configuration", key): "null" if value is None else str(value)
        for key, value in leaves(configuration.after, "")
    }


def leaves(value: Mapping[str, object], key: str) -> Iterator[tuple[str, object]]:
    """Yield all keys below `key` that hold no others, with their values."""
    for name, inner in value.items():
        below = f"{key}.{name}" if key else str(name)
        if isinstance(inner, Mapping) and inner:
            yield from leaves(inner, below)
        else:
            yield below, inner


def _named(
    values: Mapping[str, str],
    withheld: Iterable[str],
    interpreter: Interpreter | Unknown,
    trees: VerlTrees | Unknown,
) -> Values:
    places = {} if isinstance(interpreter, Unknown) else {interpreter.prefix: "<environment>"}
    if not isinstance(trees, Unknown):
        places[trees.imported.folder] = "<verl>"
    return {
        **{("variable", name): meaning.WITHHELD for name in withheld},
        **{("variable", name): _without_places(value, places) for name, value in values.items()},
    }


def _without_places(text: str, places: Mapping[str, str]) -> str:
    for folder, name in sorted(places.items(), reverse=True):
        if folder not in {"", "/", "/usr", "/usr/local"}:
            text = re.sub(rf"(?<![\w./-]){re.escape(folder)}(?![\w.-])", name, text)
    return text
