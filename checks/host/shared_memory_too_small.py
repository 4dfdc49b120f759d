"""HOST105: there is too little shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.job_here import HERE, gpus_used
from verl_doctor.checks.shared.limits_examples import gpus
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes

# vllm/distributed/device_communicators/shm_broadcast.py: ten chunks of 24 MiB; newer releases refuse to start
# when one such queue does not fit.
_QUEUE = 252 << 20
# An estimate: 1 GB is enough on eight H100 (pytorch/torchtitan#853); a segment is 9.6 to 33 MB
# (NVIDIA/nccl#290, #342).
_NCCL_A_GPU = 128 << 20
# ray/_private/ray_constants.py: the store takes 30 % of the memory, and moves to the temporary folder if it
# does not fit.
_STORE_PART, _STORE_LARGE = 0.3, 10 * 10**9


def _example(shm: SharedMemory, number: int = 8, *start: RayStart) -> tuple[object, ...]:
    return shm, gpus(number), configured()[0], RayStarts(start), HERE


_DOCKER = SharedMemory(size=64 << 20, free=64 << 20)


def _examples() -> list[Example]:
    return [
        Example(
            "half of the memory, Linux's default", _example(SharedMemory(size=125 << 30, free=125 << 30))
        ),
        Example("room for all but a huge store", _example(SharedMemory(size=16 << 30, free=16 << 30))),
        Example(
            "a small store is configured",
            _example(
                SharedMemory(size=4 << 30, free=4 << 30),
                8,
                RayStart(path="run.sh", line=3, options={"object-store-memory": "1000000000"}),
            ),
        ),
        Example("Docker's default", _example(_DOCKER), "has 64.0 MiB left"),
        Example(
            "mounted read-only",
            _example(replace(_DOCKER, refused="Read-only file system")),
            "no file can be created in /dev/shm",
        ),
        Example(
            "enough for NCCL, but not for Ray's store",
            _example(SharedMemory(size=4 << 30, free=4 << 30)),
            "Ray's object store does not fit",
        ),
    ]


@check("HOST105", phase="engine", severity="error", examples=_examples)
def shared_memory_too_small(
    shm: SharedMemory,
    resources: Resources,
    configuration: Configuration | Unknown,
    starts: RayStarts | Unknown,
    here: JobHere,
) -> Iterator[Finding]:
    """There is too little shared memory.

    ## Why it matters

    NCCL and the queues between vLLM's processes live in /dev/shm. When it is full they fail: `Error while
    creating shared memory segment ... No space left on device`, `Insufficient space in /dev/shm`, or `Bus
    error`. Docker's default is 64 MB. Ray's object store lies there too: if no file can be created, Ray stops
    at once (`create_buffer failed ... Read-only file system`); if the store does not fit, it moves to the
    temporary folder, and every batch passes through a disk.

    ## How to fix

    Use `docker run --shm-size=16g` or `--ipc=host`; on Kubernetes mount an `emptyDir` with `medium: Memory`
    on /dev/shm; as root run `mount -o remount,size=16G /dev/shm`. It uses memory only as it fills.
    `verl-doctor clean --apply` removes what crashed jobs left there.
    """
    number = gpus_used(here, resources, configuration)
    need = (_QUEUE if number else 0) + (_NCCL_A_GPU * number if number > 1 else 0)
    store = 0
    if resources.memory and not (isinstance(starts, RayStarts) and starts.gives("object-store-memory")):
        store = int(min(resources.memory * _STORE_PART, _STORE_LARGE))
    evidence = Evidence(
        found=f"{in_bytes(shm.free)} free of {in_bytes(shm.size)}",
        wanted=(f"{in_bytes(need)} for {counted(number, 'GPU')}, and " if number else "")
        + f"{in_bytes(store)} for Ray's object store",
        read_from="/dev/shm",
    )
    larger = (
        f"enlarge it to {-(-(need + store) * 11 // 10 >> 30)} GiB: docker run --shm-size, an emptyDir with "
        "medium Memory, or a remount"
    )
    if shm.refused:
        yield Finding(
            (
                f"no file can be created in /dev/shm ({shm.refused}): Ray's object store lies there, so Ray "
                "cannot start"
            ),
            Evidence(found=shm.refused, wanted="a file can be created", read_from="/dev/shm"),
            subject=Subject("memory", "/dev/shm"),
            remedy=(
                "mount it writable (mount -o remount,rw /dev/shm), or give the container one: --shm-size, "
                "or an emptyDir with medium Memory"
            ),
            phase="ray",
        )
    elif shm.free < need:
        yield Finding(
            f"/dev/shm has {in_bytes(shm.free)} left, but NCCL and vLLM need about {in_bytes(need)}",
            evidence,
            subject=Subject("memory", "/dev/shm"),
            remedy=larger,
        )
    elif shm.free < store:
        yield Finding(
            "Ray's object store does not fit into /dev/shm and falls back to disk",
            evidence,
            subject=Subject("memory", "/dev/shm"),
            remedy=larger,
            severity="warning",
        )
