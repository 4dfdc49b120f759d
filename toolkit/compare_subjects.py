"""What two machines are compared in: what is read from their facts, by kind and name of the subject, the telling kinds first.

Readers are as those of `fleet_subjects`, which compare the nodes of one cluster, and some are the same. These see more, for what
differs between two clusters is not an accident of one node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit import fleet_subjects
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_gpus import Gpus
from verl_doctor.toolkit.fact_packages import Packages
from verl_doctor.toolkit.fleet_subjects import Answers, Nearly


@dataclass(frozen=True)
class Reader:
    """A reader of answers. `matters` says whether a difference does where no rule speaks of it.

    `nearly` says that the values are numbers, and which of them count as the same. `why` is one line for a person, in which
    `{name}` is the subject.
    """

    read: Callable[..., Answers]
    why: str
    matters: bool = True
    nearly: Nearly | None = None


def _packages(packages: Packages) -> Answers:
    return {
        ("package", one.name): one.version + (" (editable)" if one.editable else "")
        for one in packages.distributions
    }


def _gpus(gpus: Gpus) -> Answers:
    return {("driver", "driver"): gpus.driver, ("driver", "CUDA of the driver"): gpus.cuda}


def _variables(variables: Variables) -> Answers:
    return {
        **{("variable", name): value for name, value in variables.values.items()},
        **{("variable", name): "(set; its value is not kept)" for name in variables.withheld},
    }


def _configuration(configuration: Configuration) -> Answers:
    return {("configuration", key): _value(value) for key, value in _leaves(configuration.after, "") if key}


def _leaves(value: object, key: str) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping) or not value:
        return [(key, value)]
    return [
        leaf
        for name, inner in value.items()
        for leaf in _leaves(inner, f"{key}.{name}" if key else str(name))
    ]


def _value(value: object) -> str:
    return "null" if value is None else str(value)


READERS: tuple[Reader, ...] = (
    Reader(_packages, "the job imports {name}"),
    Reader(_gpus, "what runs on the GPUs is compiled for it"),
    Reader(_variables, "the job's processes inherit {name}"),
    Reader(_configuration, "the job is run with it"),
    *(Reader(one.read, "", nearly=one.nearly) for one in fleet_subjects.SUBJECTS[6:9]),
)
