"""ENV116: the job's runtime_env and verl's give the same variable, and Ray refuses both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.effective import CONSTANTS, own
from verl_doctor.toolkit.collectors.variables.effective_environment import Clash, EffectiveEnvironment
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_CLASH = Clash("NCCL_ALGO", "/home/me/runtime_env.yaml", 3, CONSTANTS, 153)


@check(
    "ENV116",
    phase="ray",
    examples=lambda: [
        Example("nothing is given twice", (own(),)),
        Example("one that verl always passes on", (replace(own(), clashes=(_CLASH,)),), "NCCL_ALGO is given by the job's runtime_env and by verl"),
    ],
)  # fmt: skip
def runtime_envs_clash(environment: EffectiveEnvironment) -> Iterator[Finding]:
    """The job's runtime_env and verl's set the same variable, and Ray refuses both.

    ## Why it matters

    A job that is handed in with `ray job submit --runtime-env` has a `runtime_env` already. verl calls
    `ray.init` with another one, and Ray refuses when both name the same variable: `ValueError: Failed to
    merge the Job's runtime env ... because of a conflict`, even when the values are equal. Most of verl's
    defaults yield; those that it always passes on do not.

    ## How to fix

    Take the variable out of the job's `runtime_env` and set it for the raylets, or let the driver's win:
    `RAY_OVERRIDE_JOB_RUNTIME_ENV=1` in the job's `env_vars`.
    """
    for clash in environment.clashes:
        yield Finding(
            f"{clash.name} is given by the job's runtime_env and by verl, so ray.init will refuse",
            Evidence(
                f"{clash.name} in both",
                "one of them, or RAY_OVERRIDE_JOB_RUNTIME_ENV=1",
                f"{clash.verl_path}:{clash.verl_line}",
            ),
            subject=Subject("variable", clash.name),
            location=Location(clash.path, clash.line or None),
            remedy="remove it from the job's runtime_env, or add RAY_OVERRIDE_JOB_RUNTIME_ENV=1 to it",
            also=(Location(clash.verl_path, clash.verl_line or None),),
        )
