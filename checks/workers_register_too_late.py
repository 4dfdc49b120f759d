"""HOST117: Ray's workers take so long to start that Ray gives them up."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._configuration import asked
from verl_doctor.checks._job_here import HERE, hint
from verl_doctor.checks._limits_examples import an_h200_node, healthy
from verl_doctor.checks._ray_cpus import cpus_of, told_cpus
from verl_doctor.checks._ray_needs import REGISTER, register_timeout, started_at_once
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_job_here import JobHere
from verl_doctor.toolkit.fact_job_variables import JobVariables
from verl_doctor.toolkit.fact_limits import HostLimits
from verl_doctor.toolkit.fact_ray_cpus import RayCpus
from verl_doctor.toolkit.fact_ray_import import RayImport
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check


def _example(seconds: float, counted: int = 32, cpus: int = 32, **variables: str) -> tuple[object, ...]:
    return (
        RayImport(seconds),
        RayCpus(counted, "/sys/devices/system/cpu/online"),
        an_h200_node(healthy(cpus=cpus), online=counted),
        Variables(),
        JobVariables(variables),
        asked()[0],
        HERE,
    )


@check(
    "HOST117",
    severity="warning",
    cost="live",
    examples=[
        Example("a local disk", _example(0.8)),
        Example("many workers on a local disk", _example(0.8, 128, 8)),
        Example("the time was raised", _example(25, RAY_worker_register_timeout_seconds="600")),
        Example("a slow share", _example(35), "took 35 s to import Ray"),
        Example("many workers on few CPUs", _example(4, 128, 8), "RAY_worker_register_timeout_seconds"),
    ],
)  # fmt: skip
def workers_register_too_late(
    ray_import: RayImport,
    ray: RayCpus | Unknown,
    limits: HostLimits,
    variables: Variables,
    job: JobVariables,
    configuration: Configuration | Unknown,
    here: JobHere,
) -> Iterator[Finding]:
    """Ray's workers take so long to start that Ray gives them up.

    ## Why it matters

    A worker has 60 s to import Ray and register. As many start at once as Ray counts CPUs, from the same disk and on the
    same CPUs: with an environment on a network file system, or far fewer CPUs than Ray counts, that is too short. `Some
    workers of the worker process have not registered within the timeout`, and the job hangs or starts them over and over.

    ## How to fix

    An environment on a local disk, bytecode that is there (PY103), as many workers as CPUs (HOST101). The fix gives the
    workers more time, computed from the import that was measured; it repairs nothing where they crash.
    """
    bound = cpus_of(limits.subjects[0], variables)
    given = job.get(REGISTER)
    counted = 0 if isinstance(ray, Unknown) else ray.counted
    told = limits.raylets[0].told if limits.raylets else told_cpus(configuration)
    workers = started_at_once(told or counted or limits.online or 1, limits)
    needed = ray_import.seconds * max(1.0, workers / bound.amount) if bound else ray_import.seconds
    allowed = float(given) if given.isdecimal() else 60.0
    if needed > allowed / 2:
        right = register_timeout(needed)
        yield Finding(
            f"a process here took {ray_import.seconds:.0f} s to import Ray, and {workers} workers at once may need"
            f" {needed:.0f} s: {REGISTER} is {allowed:.0f}",
            Evidence(
                found=f"{ray_import.seconds:g} s{'' if ray_import.ended else ', and it had not ended'}",
                wanted=f"{allowed / 2:.0f} s or less for {workers} workers on {bound.amount if bound else 1:g} CPUs",
            ),
            remedy=f"put the environment on a local disk, or set {REGISTER}={right}",
            severity=hint(here),
            fix="more-time-to-register",
        )
