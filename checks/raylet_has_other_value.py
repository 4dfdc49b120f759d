"""ENV111: the raylet was started with another value than the driver has."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._effective import (
    dead,
    is_for_workers,
    own,
    read_from,
    row,
    said,
    script,
    set_at,
    standing,
    who_starts,
)
from verl_doctor.toolkit.fact_effective_environment import Effective, EffectiveEnvironment, Value
from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.fact_variable_readers import VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_OTHER = row("HF_HOME", "/new", "/old", "/old")
_DEVICES = Value(untold="Ray gives each worker its GPUs", present=True)


@check(
    "ENV111",
    severity="warning",
    examples=[
        Example("both have the same", (standing(row("HF_HOME", "/new", "/new", "/new")), *script("HF_HOME"))),
        Example("the job starts its own Ray", (own(row("HF_HOME", "/new", "/new", "/new", "the driver")), *script("HF_HOME"))),
        Example("the raylet alone has it", (standing(row("NCCL_IB_HCA", None, "mlx5", "mlx5")), *script())),
        Example("the runtime_env decides", (standing(row("HF_HOME", "/new", "/old", "/new", "the runtime_env")), *script("HF_HOME"))),
        Example("no worker needs it", (standing(row("PATH", "/a", "/b", "/b")), *script("PATH"))),
        Example("the workers see the raylet's", (standing(_OTHER), *script("HF_HOME")), "the workers see /old"),
        Example(
            "Ray gives out what the raylet may see",
            (standing(row("CUDA_VISIBLE_DEVICES", "0,1", "2,3", _DEVICES, "Ray")), *script("CUDA_VISIBLE_DEVICES")),
            "the raylet has 2,3",
        ),
    ],
)  # fmt: skip
def raylet_has_other_value(
    environment: EffectiveEnvironment,
    variables: Variables,
    launch: Launch | Unknown,
    readers: VariableReaders | Unknown,
) -> Iterator[Finding]:
    """The raylet was started with another value than the driver has.

    ## Why it matters

    The workers see the raylet's value: that of the shell, or of the service, which ran `ray start`, perhaps weeks ago. A job that is
    tried with `LD_LIBRARY_PATH`, `HF_HOME` or `no_proxy` changed in the shell runs with the old ones. Of
    `CUDA_VISIBLE_DEVICES` Ray gives its workers those GPUs that the raylet may see.

    ## How to fix

    Start Ray anew, on every node, from a shell with the right value (`verl-doctor fix --output-env DIR` writes a file to source
    there), or hand the value on with `+ray_kwargs.ray_init.runtime_env.env_vars.NAME=value`.
    """
    unread = dead(readers)
    for one in environment.rows:
        if not _is_the_raylets(one) or one.name in unread:
            continue
        location, where = set_at(one.name, variables, launch)
        sees = f"the workers see {said(one.raylet)}, the raylet's"
        if one.decided_by == "Ray":
            sees = f"the raylet has {said(one.raylet)}, and its workers get GPUs of these"
        yield Finding(
            f"{one.name} is {said(one.driver)} for the driver, but {sees}",
            Evidence(
                f"{said(one.driver)} in {where}",
                f"the same in {who_starts(environment)}: {said(one.raylet)}",
                read_from(environment),
            ),
            location=location,
            remedy="start Ray anew from a shell with the right value, on every node",
            severity=None if location or not isinstance(launch, Unknown) else "info",
            fix=None if one.decided_by == "Ray" else "value-for-workers",
        )


def _is_the_raylets(one: Effective) -> bool:
    """Whether the workers have the raylet's value, and the driver another one."""
    both_set = one.driver.is_set is True and one.raylet.is_set is True
    decides = one.decided_by == "the raylet" or (
        one.decided_by == "Ray" and one.name.endswith("_VISIBLE_DEVICES")
    )
    return (
        is_for_workers(one.name)
        and both_set
        and decides
        and one.dropped is None
        and one.driver.differs(one.raylet)
    )
