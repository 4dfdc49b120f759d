"""LOAD116: processes of a node write the same copy of the model to shared memory at once."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import (
    SEVEN_BILLION,
    SHARED_MEMORY,
    copies_once,
    job,
    not_in_shared_memory,
    storage,
    warmup,
)
from verl_doctor.checks.shared.configuration import GPUS, NODES, place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.copy import ModelCopy
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_REQUESTED = f"{SHARED_MEMORY}=True"
_AS_RELEASED = ModelCopy(guarded=False, read_from="/env/verl/utils/fs.py")
_LOCKED = ModelCopy(guarded=True, read_from="/env/verl/utils/fs.py")


def _examples() -> list[Example]:
    return [
        Example("not set", (job(f"{NODES}=4"), SEVEN_BILLION, storage(), _AS_RELEASED)),
        Example(
            "on one node the driver copies first", (job(_REQUESTED), SEVEN_BILLION, storage(), _AS_RELEASED)
        ),
        Example(
            "one process a node",
            (job(_REQUESTED, f"{NODES}=4", f"{GPUS}=1"), SEVEN_BILLION, storage(), _AS_RELEASED),
        ),
        Example(
            "they wait for each other", (job(_REQUESTED, f"{NODES}=4"), SEVEN_BILLION, storage(), _LOCKED)
        ),
        Example(
            "an earlier run left a complete copy",
            (job(_REQUESTED, f"{NODES}=4"), SEVEN_BILLION, storage(in_shared_memory=True), _AS_RELEASED),
        ),
        Example(
            "four nodes",
            (job(_REQUESTED, f"{NODES}=4"), SEVEN_BILLION, storage(), _AS_RELEASED),
            "on 3 of 4 nodes 8 processes write the same 16.0 GiB",
        ),
    ]


@check("LOAD116", severity="warning", applies=not_in_shared_memory, examples=_examples)
def model_copied_by_many_at_once(
    configuration: Configuration, files: ModelFiles, storage: ModelStorage, copy: ModelCopy
) -> Iterator[Finding]:
    """Processes of a node write the same copy of the model to shared memory at once.

    ## Why it matters

    With `use_shm` each worker copies the model to the same place in `/dev/shm/verl-cache`, truncating each
    file first (verl-project/verl#4851). The worker that finishes first loads what another has just truncated
    or half written: `MetadataIncompleteBuffer`, `Bus error`, or, silently, blocks of zeros instead of
    weights. In seven of nine trials of verl 0.9.1's own function, with four and eight processes that began
    within a second, one process read such a file. The node of verl's driver is safe: the driver copies before
    it starts workers.

    ## How to fix

    Remove `use_shm`, and read the model into the page cache of all nodes first: `verl-doctor warmup --cluster
    --model DIR`. It has one reader on each node, is as fast, and the memory stays available. LOAD106 checks
    the space in `/dev/shm`: it is one model on each node, however many processes write it.
    """
    nodes, processes = configuration.number(NODES) or 0, configuration.number(GPUS) or 0
    if copy.guarded or storage.in_shared_memory or copies_once(configuration) or min(nodes, processes) < 2:
        return
    size = sum(file.size for file in files.files)
    word = configuration.override_of(SHARED_MEMORY)
    yield Finding(
        (
            f"on {nodes - 1:.0f} of {nodes:.0f} nodes {processes:.0f} processes write the same "
            f"{in_bytes(size)} to /dev/shm at once: one may load a file that another has truncated"
        ),
        Evidence(
            found=(
                f"a copy without a lock: each node reads and writes {in_bytes(processes * size)} for "
                f"{in_bytes(size)}"
            ),
            wanted="one process that copies while the others wait",
            read_from=copy.read_from,
        ),
        subject=Subject("setting", SHARED_MEMORY),
        location=place(word) if word else None,
        remedy=f"set {SHARED_MEMORY}=False and run {warmup(storage.folder)} --cluster before the job",
    )
