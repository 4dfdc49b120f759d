"""LOAD106: the model is to be copied into shared memory, but does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.loading._loading import (
    GIB,
    SEVEN_BILLION,
    SHARED_MEMORY,
    job,
    not_in_shared_memory,
    storage,
)
from verl_doctor.checks.loading._weights import shard
from verl_doctor.checks.shared.configuration import place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_REQUESTED = job(f"{SHARED_MEMORY}=True")
_LARGE, _SMALL = SharedMemory(size=128 * GIB, free=128 * GIB), SharedMemory(size=8 * GIB, free=8 * GIB)
_MEMORY = HostMemory(total=256 * GIB, available=200 * GIB)
_TWICE = replace(
    SEVEN_BILLION,
    files=(*SEVEN_BILLION.files, shard("consolidated.safetensors", 16 * GIB)),
    indexed=tuple(file.name for file in SEVEN_BILLION.files),
)


def _examples() -> list[Example]:
    return [
        Example("not set", (job(), SEVEN_BILLION, storage(), _SMALL, _MEMORY)),
        Example("enough space", (_REQUESTED, SEVEN_BILLION, storage(), _LARGE, _MEMORY)),
        Example(
            "an earlier run left its copy",
            (_REQUESTED, SEVEN_BILLION, storage(in_shared_memory=True), _SMALL, _MEMORY),
        ),
        Example(
            "/dev/shm is too small",
            (_REQUESTED, SEVEN_BILLION, storage(), _SMALL, _MEMORY),
            "16.0 GiB of weights to /dev/shm, but 8.0 GiB are free",
        ),
        Example(
            "the memory is too small",
            (_REQUESTED, SEVEN_BILLION, storage(), _LARGE, HostMemory(total=16 * GIB, available=12 * GIB)),
            "12.0 GiB of memory are left",
        ),
        Example(
            "the folder has the weights twice",
            (_REQUESTED, _TWICE, storage(), SharedMemory(size=24 * GIB, free=24 * GIB), _MEMORY),
            "32.0 GiB of weights",
        ),
    ]


@check("LOAD106", phase="workers", applies=not_in_shared_memory, examples=_examples)
def model_larger_than_shared_memory(
    configuration: Configuration,
    files: ModelFiles,
    storage: ModelStorage,
    shm: SharedMemory,
    memory: HostMemory,
) -> Iterator[Finding]:
    """The model is to be copied into shared memory, but does not fit.

    ## Why it matters

    With `use_shm` verl copies the model's whole folder to `/dev/shm/verl-cache` on each node, even files that
    no loader reads, and the copy occupies memory for the whole run. Without space the copy fails with `No
    space left on device`, or the kernel kills processes for lack of memory.

    ## How to fix

    Remove `use_shm`, or enlarge `/dev/shm`. `verl-doctor warmup` is as fast and uses only free memory. Move
    files that no loader reads (`.bin` beside safetensors, `consolidated*.safetensors`) out of the model's
    folder.
    """
    size = sum(file.size for file in files.files)
    if storage.in_shared_memory:
        return
    if size > shm.free:
        left, what = shm.free, "are free"
    elif memory.available is not None and size > memory.available:
        left, what = memory.available, "of memory are left"
    else:
        return
    word = configuration.override_of(SHARED_MEMORY)
    needless = size - files.bytes
    yield Finding(
        f"verl will copy {in_bytes(size)} of weights to /dev/shm, but {in_bytes(left)} {what}",
        Evidence(
            found=f"{in_bytes(shm.free)} free of {in_bytes(shm.size)}",
            wanted=f"{in_bytes(size)}"
            + (f", of which {in_bytes(needless)} are never read" if needless else ""),
            read_from=f"/dev/shm, {files.folder}",
        ),
        subject=Subject("memory", "/dev/shm"),
        location=place(word) if word else None,
        remedy=f"set {SHARED_MEMORY}=False and run verl-doctor warmup before the job",
    )
