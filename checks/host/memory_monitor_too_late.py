"""HOST112: Ray's memory monitor acts later than the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_VARIABLE = "RAY_memory_usage_threshold"
_RAYS_OWN = 0.95  # ray_config_def.h
# Ray reads the limit from these two files only (ray/_common/utils.py, earlier ray/_private/utils.py:
# get_system_memory).
_READ_BY_RAY = ("/sys/fs/cgroup", "/sys/fs/cgroup/memory")
_GIB = 1 << 30


def _example(folder: str = "", gib: int = 0, threshold: str = "") -> tuple[object, ...]:
    groups = (Group(folder, memory=gib * _GIB, memory_used=0),) if folder else ()
    memory = HostMemory(total=1000 * _GIB, available=990 * _GIB)
    return an_h200_node(healthy(groups=groups)), memory, Variables({_VARIABLE: threshold}), HERE


_JOB = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7"


def _examples() -> list[Example]:
    return [
        Example("no limit", _example()),
        Example("a container whose limit Ray reads", _example("/sys/fs/cgroup", 128)),
        Example("a threshold that fits", _example("/sys/fs/cgroup", 128, threshold="0.9")),
        Example(
            "switched off by a threshold",
            _example("/sys/fs/cgroup", 128, threshold="1"),
            "the kernel kills first",
        ),
        Example("a Slurm job, whose limit Ray does not read", _example(_JOB, 128), "acts at 950 GiB"),
    ]


@check("HOST112", severity="warning", examples=_examples)
def memory_monitor_too_late(
    limits: HostLimits, memory: HostMemory, variables: Variables, here: JobHere
) -> Iterator[Finding]:
    """Ray's memory monitor acts later than the kernel.

    ## Why it matters

    Ray kills the newest worker when 95 % of the memory is in use, logs it, and the job may go on. It reads
    only the limit of the control group that is mounted at the top. When a lower group has a limit, as under
    Slurm, or the threshold is set higher, the kernel kills first: any process, even the raylet, without a
    message.

    ## How to fix

    Set RAY_memory_usage_threshold to the value in the finding, before Ray starts on every node. Ray counts
    the memory of the whole machine, so this is right only when no other job runs there.
    """
    limit, total = limits.shell.groups.memory_limit, memory.total
    if not limit or not total:
        return
    seen = [
        group.memory for group in limits.shell.groups.groups if group.folder in _READ_BY_RAY and group.memory
    ]
    known = min([total, *seen])
    value = variables.get(_VARIABLE)
    threshold = float(value) if value.replace(".", "", 1).isdigit() else _RAYS_OWN
    if threshold * known < limit:
        return
    right = int(_RAYS_OWN * limit / known * 100) / 100
    yield Finding(
        (
            f"Ray's memory monitor acts at {in_bytes(threshold * known)}, but the job is limited to "
            f"{in_bytes(limit)}: the kernel kills first"
        ),
        Evidence(
            found=f"{_VARIABLE} {threshold:g} of {in_bytes(known)}" + ("" if value else ", Ray's own"),
            wanted=f"less than {in_bytes(limit)}",
            read_from=next(
                (group.folder for group in limits.shell.groups.groups if group.memory == limit), ""
            ),
        ),
        subject=Subject("variable", _VARIABLE),
        remedy=f"set {_VARIABLE}={right:g} before Ray starts"
        + ("" if known == limit else ", if no other job runs on this machine"),
        severity=hint(here) or (None if value else "info"),
    )
