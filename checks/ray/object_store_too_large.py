"""RAY133: Ray's object store is larger than the available memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.hidden_groups import hidden_groups
from verl_doctor.checks.shared.job_here import HERE, at_most_warning, hint
from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits
from verl_doctor.toolkit.collectors.host.object_store import ObjectStore
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_GB = 10**9
_BY = "--object-store-memory in run.sh:3"
_SHM = SharedMemory(size=1000 * _GB, free=1000 * _GB)
_DEFAULT = ObjectStore(size=200 * _GB, given_by="", least=75 << 20, large=10 * _GB, memory=2000 * _GB)
_GIVEN = replace(_DEFAULT, given_by=_BY)
_JOB = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7"
# The share of the memory that Ray itself would take.
_PART = 0.3
_STORE = Subject("memory", "object store")


def _example(store: ObjectStore = _DEFAULT, shm: SharedMemory = _SHM, group: int = 0) -> tuple[object, ...]:
    groups = (Group(_JOB, memory=group * _GB, memory_used=0),) if group else ()
    return store, shm, an_h200_node(healthy(groups=groups)), HERE


def _examples() -> list[Example]:
    return [
        Example("Ray decides", _example()),
        Example(
            "a small container, where Ray decides",
            _example(replace(_DEFAULT, size=3 * _GB), SharedMemory(size=64 << 20, free=64 << 20)),
        ),
        Example("a size that fits", _example(_GIVEN)),
        Example(
            "a large store on a disk is explicitly allowed",
            _example(
                replace(_GIVEN, slow_allowed=True, size=20 * _GB), SharedMemory(size=16 * _GB, free=16 * _GB)
            ),
            "falls back to disk",
        ),
        Example(
            "a size above /dev/shm",
            _example(replace(_GIVEN, size=20 * _GB), SharedMemory(size=16 * _GB, free=15 * _GB)),
            "Ray does not start",
        ),
        Example(
            "a size slightly above /dev/shm",
            _example(replace(_GIVEN, size=8 * _GB), SharedMemory(size=64 << 20, free=64 << 20)),
            "falls back to disk: /dev/shm has 64.0 MiB left",
        ),
        Example(
            "a size above the machine's memory",
            _example(replace(_GIVEN, size=3000 * _GB)),
            "larger than the 1.8 TiB of memory",
        ),
        Example(
            "gigabytes given instead of bytes",
            _example(replace(_GIVEN, size=100)),
            "smaller than the 75.0 MiB",
        ),
        Example(
            "Ray decides by the machine's memory in a Slurm job",
            _example(group=128),
            "the job's control group has 119 GiB left",
        ),
    ]


@check("RAY133", phase="ray", unjudged=hidden_groups, examples=_examples)
def object_store_too_large(
    store: ObjectStore, shm: SharedMemory, limits: HostLimits, here: JobHere
) -> Iterator[Finding]:
    """Ray's object store is larger than the available memory.

    ## Why it matters

    It lies in /dev/shm. A configured size above what is free there stops `ray start` (`exceeds /dev/shm
    size`), or, below 10 GB, makes the store fall back to disk: every batch then passes through that disk. By
    default Ray takes 30 % of the memory that it detects, but it ignores limits of lower control groups, as
    Slurm sets them: when the store fills, the kernel kills processes of the job.

    ## How to fix

    Set `ray start --object-store-memory=BYTES`, or `ray_kwargs.ray_init.object_store_memory` if verl starts
    Ray, to the number in the finding; or enlarge /dev/shm.
    """
    size = in_bytes(store.size)
    whose = f"the configured object store ({store.given_by}: {size})"
    left = limits.shell.groups.memory
    fits = int(min(shm.free * 0.9, left.memory_left * _PART if left else store.memory * _PART))
    remedy = f"set --object-store-memory={fits}, which fits here" if fits > store.least else ""
    evidence = Evidence(
        found=f"{size}{', by ' + store.given_by if store.given_by else ', as Ray computes it'}",
        wanted=f"at least {in_bytes(store.least)}, at most {in_bytes(shm.free)} free in /dev/shm",
        read_from="/dev/shm, and the installed Ray's ray_constants.py",
    )
    if store.given_by and store.size < store.least:
        yield Finding(
            f"{whose} is smaller than the {in_bytes(store.least)} that Ray requires; the number is in bytes",
            evidence,
            subject=_STORE,
            remedy=remedy,
            severity=at_most_warning(here),
        )
    elif store.given_by and store.size > store.memory:
        yield Finding(
            (
                f"{whose} is larger than the {in_bytes(store.memory)} of memory that Ray detects: Ray does "
                "not start"
            ),
            evidence,
            subject=_STORE,
            remedy=remedy,
            severity=at_most_warning(here),
        )
    elif store.given_by and store.size > shm.free:
        refused = store.size > store.large and not store.slow_allowed
        what = "does not fit into /dev/shm, so Ray does not start" if refused else "falls back to disk"
        yield Finding(
            f"{whose} {what}: /dev/shm has {in_bytes(shm.free)} left",
            evidence,
            subject=_STORE,
            remedy=remedy,
            severity=at_most_warning(here) if refused else hint(here) or "warning",
        )
    elif left and store.size > left.memory_left:
        yield Finding(
            (
                f"Ray's object store may fill {size} of memory, but the job's control group has "
                f"{in_bytes(left.memory_left)} left"
            ),
            replace(evidence, wanted=f"less than {in_bytes(left.memory_left)}", read_from=left.folder),
            subject=_STORE,
            remedy=remedy,
            severity=hint(here) or "warning",
        )
