"""ENV111: the raylet was started with a different value of a variable from the driver's."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.effective import (
    dead,
    is_for_workers,
    own,
    raylet_names,
    read_from,
    row,
    script,
    set_at,
    standing,
    value_text,
)
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_OTHER = row("HF_HOME", "/new", "/old", "/old")
_DEVICES = Value(undetermined="Ray gives each worker its GPUs")
_NAME = "CUDA_VISIBLE_DEVICES"
_GPUS = Gpus((Device(0), Device(1), Device(2), Device(3)))


def _examples() -> list[Example]:
    return [
        Example("both have the same", (standing(row("HF_HOME", "/new", "/new", "/new")), *script("HF_HOME"))),
        Example(
            "the job starts its own Ray",
            (own(row("HF_HOME", "/new", "/new", "/new", "the driver")), *script("HF_HOME")),
        ),
        Example("the raylet alone has it", (standing(row("NCCL_IB_HCA", None, "mlx5", "mlx5")), *script())),
        Example(
            "the runtime_env decides",
            (standing(row("HF_HOME", "/new", "/old", "/new", "the runtime_env")), *script("HF_HOME")),
        ),
        Example("no worker needs it", (standing(row("PATH", "/a", "/b", "/b")), *script("PATH"))),
        Example(
            "the workers see the raylet's", (standing(_OTHER), *script("HF_HOME")), "the workers see /old"
        ),
        Example(
            "this machine has no GPU", (standing(row(_NAME, "", "2,3", _DEVICES, "Ray")), *script(_NAME))
        ),
        Example(
            "Ray offers only what the raylet may see",
            (standing(row(_NAME, "0,1", "2,3", _DEVICES, "Ray")), *script(_NAME), _GPUS),
            "gives its workers GPUs of 2,3",
        ),
        Example(
            "the raylet may see all",
            (standing(row(_NAME, "0,1", None, _DEVICES, "Ray")), *script(_NAME), _GPUS),
            "gives its workers any GPU",
        ),
    ]


@check("ENV111", severity="warning", examples=_examples)
def raylet_has_other_value(
    environment: EffectiveEnvironment,
    variables: Variables,
    launch: Launch | Unknown,
    readers: VariableReaders | Unknown,
    gpus: Gpus | Unknown,
) -> Iterator[Finding]:
    """The raylet was started with a different value of a variable from the driver's.

    ## Why it matters

    Workers get the raylet's value: that of the shell or service that ran `ray start`, perhaps weeks ago. If
    you change `LD_LIBRARY_PATH`, `HF_HOME` or `no_proxy` in your shell and try the job again, the workers
    still run with the old values. In the case of `CUDA_VISIBLE_DEVICES`, Ray gives its workers only GPUs that
    the raylet may use.

    ## How to fix

    Restart Ray on every node from a shell with the right value (`verl-doctor fix --output-env DIR` writes a
    file to source there), or pass the value with `+ray_kwargs.ray_init.runtime_env.env_vars.NAME=value`.
    """
    unread = dead(readers)
    for variable in environment.rows:
        if not _is_the_raylets(variable, gpus) or variable.name in unread:
            continue
        location, where = set_at(variable.name, variables, launch)
        sees = f"the workers see {value_text(variable.raylet)}, the raylet's"
        if variable.decided_by == "Ray":
            which = f"GPUs of {value_text(variable.raylet)}" if variable.raylet.is_set else "any GPU"
            sees = f"the raylet gives its workers {which}"
        yield Finding(
            f"{variable.name} is {value_text(variable.driver)} for the driver, but {sees}",
            Evidence(
                f"{value_text(variable.driver)} in {where}",
                f"the same in {raylet_names(environment)}: {value_text(variable.raylet)}",
                read_from(environment),
            ),
            location=location,
            remedy="restart Ray from a shell with the right value, on every node",
            severity=None if location or not isinstance(launch, Unknown) else "info",
            fix="value-for-workers",
            subject=Subject("variable", variable.name),
        )


def _is_the_raylets(variable: Effective, gpus: Gpus | Unknown) -> bool:
    """Whether the raylet's value decides that of the workers, or their GPUs, and the driver's differs."""
    if variable.decided_by == "Ray":
        decides = variable.name.endswith("_VISIBLE_DEVICES") and not isinstance(gpus, Unknown)
    else:
        decides = variable.decided_by == "the raylet" and variable.raylet.is_set is True
    return (
        decides
        and is_for_workers(variable.name)
        and variable.driver.is_set is True
        and variable.dropped is None
        and variable.driver.differs(variable.raylet)
    )
