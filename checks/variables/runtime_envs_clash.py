"""ENV116: the job's runtime_env and verl's set the same variable, which Ray refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.effective import CONSTANTS, own
from verl_doctor.toolkit.collectors.variables.effective_environment import Clash, EffectiveEnvironment
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_CLASH = Clash(name="NCCL_ALGO", path="/home/me/runtime_env.yaml", line=3, verl_path=CONSTANTS, verl_line=153)


def _examples() -> list[Example]:
    return [
        Example("no variable is set twice", (own(),)),
        Example(
            "a variable that verl always passes",
            (replace(own(), clashes=(_CLASH,)),),
            "both the job's runtime_env and verl set NCCL_ALGO",
        ),
    ]


@check("ENV116", phase="ray", examples=_examples)
def runtime_envs_clash(environment: EffectiveEnvironment) -> Iterator[Finding]:
    """The job's runtime_env and verl's set the same variable, which Ray refuses.

    ## Why it matters

    A job that is submitted with `ray job submit --runtime-env` already has a `runtime_env`. verl calls
    `ray.init` with another one, and Ray refuses to merge two that set the same variable, even to equal
    values: `ValueError: Failed to merge the Job's runtime env ... because of a conflict`. verl omits most of
    its defaults in this case, but always passes some of them.

    ## How to fix

    Remove the variable from the job's `runtime_env` and set it for the raylets. Or add
    `RAY_OVERRIDE_JOB_RUNTIME_ENV=1` to the job's `env_vars`, so that the driver's values win.
    """
    for clash in environment.clashes:
        yield Finding(
            f"both the job's runtime_env and verl set {clash.name}, so ray.init fails",
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
