"""HOST117: Ray's workers start so slowly that Ray gives up on them."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.host._ray_needs import REGISTER, registration
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.collectors.ray.import_ import RayImport
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _example(seconds: float, counted: int = 32, cpus: int = 32, **variables: str) -> tuple[object, ...]:
    return (
        RayImport(seconds),
        RayCpus(counted=counted, read_from="/sys/devices/system/cpu/online"),
        an_h200_node(healthy(cpus=cpus), online=counted),
        Variables(),
        JobVariables(variables),
        configured()[0],
        HERE,
    )


def _examples() -> list[Example]:
    return [
        Example("a local disk", _example(0.8)),
        Example("many workers on a local disk", _example(0.8, 128, 8)),
        Example("the timeout is raised", _example(25, RAY_worker_register_timeout_seconds="600")),
        Example("a slow share", _example(35), "took 35 s to import Ray"),
        Example("many workers on few CPUs", _example(4, 128, 8), "RAY_worker_register_timeout_seconds"),
    ]


@check("HOST117", severity="warning", cost="live", examples=_examples)
def workers_register_too_late(
    ray_import: RayImport,
    ray: RayCpus | Unknown,
    limits: HostLimits,
    variables: Variables,
    job: JobVariables,
    configuration: Configuration | Unknown,
    here: JobHere,
) -> Iterator[Finding]:
    """Ray's workers start so slowly that Ray gives up on them.

    ## Why it matters

    A worker has 60 s to import Ray and register. As many start at once as Ray counts CPUs, from the same disk
    and on the same CPUs. With an environment on a network file system, or far fewer CPUs than Ray counts, 60
    s are too few: `Some workers of the worker process have not registered within the timeout`, and the job
    hangs or restarts them endlessly.

    ## How to fix

    Put the environment on a local disk, compile its bytecode (PY103), and use as many workers as CPUs
    (HOST101). The fix raises the timeout, computed from the measured import; it does not help if workers
    crash.
    """
    at_once = registration(ray_import, ray, limits, variables, job, configuration)
    if at_once.is_too_slow:
        workers, allowed = at_once.workers, at_once.allowed
        yield Finding(
            (
                f"a process here took {ray_import.seconds:.0f} s to import Ray, so {workers} workers at "
                f"once may need {at_once.needed:.0f} s to register: {REGISTER} is {allowed:.0f}"
            ),
            Evidence(
                found=f"{ray_import.seconds:g} s{'' if ray_import.ended else ', unfinished'}",
                wanted=f"{allowed / 2:.0f} s or less for {workers} workers on {at_once.cpus:g} CPUs",
            ),
            remedy=f"put the environment on a local disk, or set {REGISTER}={at_once.right}",
            severity=hint(here),
            fix="more-time-to-register",
            subject=Subject("variable", REGISTER),
        )
