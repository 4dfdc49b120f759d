"""LOAD113: the weights lie on a network file system that delivers them in small pieces."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import (
    GIB,
    SHARED_MEMORY,
    VLLM,
    copies_once,
    engine_reads,
    job,
    storage,
    warmup,
)
from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.collectors.vllm.loading import VllmLoading
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_SMALL = 128 * 1024  # bytes: the kernel's default, also of NFS since Linux 5.4
_FEW = 2 * GIB  # too few bytes to matter
# sgl-project/sglang#37806, as of 2026-11: weights on a network file system, mapped, and read ahead.
_COST = (
    "measured elsewhere: 28 MiB/s when weights are mapped from a network file system, 704 GiB in 43 s when "
    "read ahead"
)
# File systems that read ahead themselves, whatever the kernel's setting.
_BY_THEMSELVES = frozenset(["lustre", "gpfs", "beegfs", "wekafs", "panfs"])


def _irrelevant(storage: ModelStorage) -> str | None:
    return None if storage.shared else f"{storage.where} is not a network file system"


def _examples() -> list[Example]:
    return [
        Example("on a disk of the node", (storage(), job(), VLLM, HERE)),
        Example(
            "NFS that reads ahead", (storage("nfs4", shared=True, read_ahead=15 << 20), job(), VLLM, HERE)
        ),
        Example(
            "Lustre reads ahead by itself", (storage("lustre", shared=True, read_ahead=0), job(), VLLM, HERE)
        ),
        Example(
            "nearly all is in memory",
            (storage("nfs4", cached=15 * GIB, shared=True, read_ahead=_SMALL), job(), VLLM, HERE),
        ),
        Example(
            "verl copies the model first",
            (storage("nfs4", shared=True, read_ahead=_SMALL), job(f"{SHARED_MEMORY}=True"), VLLM, HERE),
        ),
        Example(
            "NFS with Linux's default",
            (storage("nfs4", shared=True, read_ahead=_SMALL), job(), VLLM, HERE),
            "come from nfs4 (/models) in pieces of 128 KiB",
        ),
        Example(
            "a mounted bucket",
            (storage("fuse.s3fs", shared=True, read_ahead=_SMALL), job(), VLLM, HERE),
            "fuse.s3fs (/models)",
        ),
    ]


@check("LOAD113", severity="warning", applies=_irrelevant, examples=_examples)
def weights_read_in_small_pieces(
    storage: ModelStorage,
    configuration: Configuration | Unknown,
    vllm: VllmLoading | Unknown,
    here: JobHere,
) -> Iterator[Finding]:
    """The weights lie on a network file system that delivers them in small pieces.

    ## Why it matters

    Safetensors are mapped into memory and fetched page fault by page fault. How much each fault fetches is
    the file system's read-ahead. NFS has 128 KiB since Linux 5.4, so loading is a chain of round trips at a
    few dozen MiB/s on a network that could deliver a hundred times that. vLLM from 0.20 on reads ahead itself
    on NFS and Lustre, but in a verl job it is the trainer that reads.

    ## How to fix

    Run `verl-doctor warmup --model DIR` on each node before the job: it reads with several large requests at
    once, and every process then finds the weights in memory. `actor_rollout_ref.model.use_shm=True` does the
    same in a job on one node, if `/dev/shm` is large enough. An administrator can set the read-ahead
    permanently: `nfsrahead`, or a udev rule for `/sys/class/bdi/*/read_ahead_kb`. `check --deep --model DIR`
    measures the cost (LOAD114).
    """
    copied = not isinstance(configuration, Unknown) and configuration.get(SHARED_MEMORY) is True
    small = storage.read_ahead is not None and storage.read_ahead <= _SMALL
    if copied or not small or storage.kind in _BY_THEMSELVES or storage.cold < _FEW:
        return
    itself = not isinstance(vllm, Unknown) and storage.kind in vllm.reads_ahead_on
    known = not isinstance(configuration, Unknown)
    own = (
        f"vLLM {vllm.version} reads ahead there itself, "
        + ("after the trainer has read" if known else "transformers does not")
        if not isinstance(vllm, Unknown) and itself and engine_reads(configuration)
        else ""
    )
    yield Finding(
        (
            f"{in_bytes(storage.cold)} of weights come from {storage.where} in pieces of "
            f"{in_bytes(storage.read_ahead or 0)}"
        ),
        Evidence(
            found="; ".join(
                filter(
                    None, (f"read-ahead {in_bytes(storage.read_ahead or 0)}", " ".join(storage.options), own)
                )
            ),
            wanted=f"a read-ahead of several MiB, or the weights in memory before the job ({_COST})",
            read_from=f"/sys/class/bdi, {storage.folder}",
        ),
        subject=Subject("model", storage.folder),
        remedy=f"run {warmup(storage.folder)} on each node before the job"
        + (f", or set {SHARED_MEMORY}=True" if copies_once(configuration) else ""),
        severity=hint(here),
    )
