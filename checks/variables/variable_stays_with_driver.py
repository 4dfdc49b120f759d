"""ENV108: a variable is set for the process that starts the job, but does not reach the workers."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.effective import (
    dead,
    lost_on_the_way,
    own,
    raylet_names,
    read_from,
    row,
    script,
    set_at,
    shell,
    standing,
)
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    WITHHELD,
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_LOST = row("NCCL_IB_HCA", "mlx5", None, None, "nobody")
_KEY = Effective(
    name="WANDB_API_KEY",
    driver=Value(undetermined=WITHHELD, present=True),
    raylets=(Value(),),
    workers=(Value(),),
    decided_by="nobody",
)
_SHOWN = 6


def _examples() -> list[Example]:
    return [
        Example(
            "it reaches them", (standing(row("NCCL_IB_HCA", "mlx5", "mlx5", "mlx5")), *script("NCCL_IB_HCA"))
        ),
        Example(
            "the job starts its own Ray",
            (own(row("NCCL_IB_HCA", "mlx5", "mlx5", "mlx5", "the driver")), *script("NCCL_IB_HCA")),
        ),
        Example(
            "no worker needs it",
            (standing(row("SLURM_JOB_ID", "7", None, None, "nobody")), *script("SLURM_JOB_ID")),
        ),
        Example(
            "verl passes it on",
            (standing(row("NCCL_ALGO", "Ring", None, "Ring", "verl")), *script("NCCL_ALGO")),
        ),
        Example(
            "a script exports it only for the driver",
            (standing(_LOST), *script("NCCL_IB_HCA")),
            "do not get NCCL_IB_HCA",
        ),
        Example("the shell has it", (standing(_LOST), *shell("NCCL_IB_HCA")), "do not get NCCL_IB_HCA"),
        Example(
            "two variables, in one finding",
            (standing(row("HF_HOME", "/hf", None, None, "nobody"), _LOST), *script("HF_HOME", "NCCL_IB_HCA")),
            "do not get HF_HOME, NCCL_IB_HCA",
        ),
        Example(
            "a secret, which is never written to a file",
            (standing(_KEY), *shell("WANDB_API_KEY")),
            "do not get WANDB_API_KEY",
        ),
    ]


@check("ENV108", severity="warning", examples=_examples)
def variable_stays_with_driver(
    environment: EffectiveEnvironment,
    variables: Variables,
    launch: Launch | Unknown,
    readers: VariableReaders | Unknown,
) -> Iterator[Finding]:
    """A variable is set for the process that starts the job, but does not reach the workers.

    ## Why it matters

    Ray's workers are children of the raylet, not of the driver, so they inherit the variables that were set
    when `ray start` ran on their node. What a launch script exports before `python -m verl...` stays with the
    driver, unless a `runtime_env` or verl itself passes it on. No message appears: NCCL uses another network
    card, the model is loaded from another cache, or a switch has no effect.

    ## How to fix

    Set it before `ray start` on every node: `verl-doctor fix --output-env DIR` writes a file to source there,
    and the same values as a `runtime_env`. Or pass it with the job:
    `+ray_kwargs.ray_init.runtime_env.env_vars.NAME=value`. `verl-doctor explain variables` shows what each
    process gets.
    """
    unread = dead(readers)
    lost = [variable for variable in lost_on_the_way(environment) if variable.name not in unread]
    for rows in (
        [variable for variable in lost if variable.driver.whole is not None],
        [variable for variable in lost if variable.driver.whole is None],
    ):
        if rows:
            yield _finding(rows, environment, variables, launch)


def _finding(
    rows: list[Effective], environment: EffectiveEnvironment, variables: Variables, launch: Launch | Unknown
) -> Finding:
    """One finding for these variables.

    Those whose values may be written to a file are reported separately from the others.
    """
    places = [set_at(variable.name, variables, launch) for variable in rows]
    locations = [location for location, _ in places if location is not None]
    names = listed((variable.name for variable in rows), _SHOWN)
    may_be_written = rows[0].driver.whole is not None
    them = "it" if len(rows) == 1 else "them"
    handed_on = f", or pass {them} in the job's runtime_env" if may_be_written else ""
    return Finding(
        f"the workers do not get {names}, which {'is' if len(rows) == 1 else 'are'} set for the driver only",
        Evidence(
            f"set in {listed(dict.fromkeys(words for _, words in places), 3)}",
            f"{them} in the environment of {raylet_names(environment)} too",
            read_from(environment),
        ),
        location=locations[0] if locations else None,
        remedy=f"set {them} before ray start on every node{handed_on}",
        severity=None if locations or not isinstance(launch, Unknown) else "info",
        fix="variables-for-workers" if may_be_written else None,
        also=tuple(dict.fromkeys(locations[1:])),
        subject=Subject("variable", ", ".join(variable.name for variable in rows)),
    )
