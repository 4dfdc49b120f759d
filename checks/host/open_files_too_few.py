"""HOST103: fewer files may be open than Ray needs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.host._ray_needs import actors, files_needed, started_at_once
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.job_here import HERE, gpus_used
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.checks.shared.ray_cpus import given_cpus
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limit
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check


def _example(limits: HostLimits, cpus: int, here: JobHere = HERE) -> tuple[object, ...]:
    return (
        limits,
        RayCpus(counted=cpus, read_from="/sys/devices/system/cpu/online"),
        gpus(8),
        configured()[0],
        here,
    )


_LOW = Limit(soft=1024, hard=524288)
_TO_START = (
    64  # files: Ray raises its soft limit to the hard one, and its GCS server does not start with fewer
)


def _examples() -> list[Example]:
    return [
        Example("many", _example(an_h200_node(), 512)),
        Example("the usual 1024 and 32 CPUs", _example(an_h200_node(healthy(files=_LOW)), 32)),
        Example(
            "the usual 1024 and 512 CPUs",
            _example(an_h200_node(healthy(files=_LOW), online=512), 512),
            "may open 1024 files",
        ),
        Example(
            "a raylet has less than the shell",
            _example(an_h200_node(None, healthy(7, 512, files=_LOW), online=512), 512),
            "the raylet (process 7) may open 1024 files",
        ),
        Example(
            "too few even to start Ray",
            _example(an_h200_node(healthy(files=Limit(soft=40, hard=40))), 32),
            "may open 40 files",
        ),
        Example(
            "the limit cannot be raised",
            _example(an_h200_node(healthy(files=Limit(soft=256, hard=256))), 32),
            "may open 256 files",
        ),
    ]


@check("HOST103", severity="warning", examples=_examples)
def open_files_too_few(
    limits: HostLimits,
    ray: RayCpus | Unknown,
    resources: Resources,
    configuration: Configuration | Unknown,
    here: JobHere,
) -> Iterator[Finding]:
    """Ray needs more open files than the limit allows.

    ## Why it matters

    The GCS server and the raylet keep a socket and log files open for each worker, and there is a worker for
    each CPU: `OSError: [Errno 24] Too many open files`, often hours into the run when more workers start.
    What counts is `ulimit -n` in the shell that starts Ray; if Ray is already running, raising it in the
    job's shell changes nothing. Below 64 Ray itself does not start.

    ## How to fix

    Run `ulimit -n N` in the launch script, before `ray start` or the job. Only root can go above the hard
    limit (/etc/security/limits.conf, LimitNOFILE of a service, `docker run --ulimit nofile=N`). Alternatively
    give Ray fewer CPUs.
    """
    number = gpus_used(here, resources, configuration)
    for subject in limits.subjects:
        counted = 0 if isinstance(ray, Unknown) else ray.counted
        started = started_at_once(subject.ray_cpus or given_cpus(configuration) or counted, limits)
        workers = max(started, actors(configuration, number))
        need, own = files_needed(workers), subject.files
        if own is None or own.soft is None or own.soft >= need:
            continue
        may = own.hard is None or own.hard >= need
        stops = not subject.pid and own.hard is not None and own.hard < _TO_START
        target = min(65536, own.hard or 65536) if may else need
        yield Finding(
            f"{subject.name} may open {own.soft} files, but Ray needs about {need}",
            Evidence(
                found=f"ulimit -n {own.soft}, at most {'unlimited' if own.hard is None else own.hard}",
                wanted=f"{need} for {workers} workers",
                read_from=f"/proc/{subject.pid or 'self'}/limits",
            ),
            subject=Subject("limit", "open files"),
            remedy=(
                f"put ulimit -n {target} in the launch script, before ray start"
                if may
                else (
                    f"ask the administrator for a hard limit of {target} open files; this user cannot raise "
                    "it"
                )
            )
            + (", and restart Ray" if subject.pid else ""),
            severity="error" if stops else None,
            stops=(EVERY_JOB,) if stops else (),
            phase="ray",
        )
