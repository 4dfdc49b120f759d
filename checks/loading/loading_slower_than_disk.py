"""LOAD114: the weights load far more slowly than their path allows, or the path itself is slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.loading._load_prediction import Reading, in_seconds, in_words, rate, reading
from verl_doctor.checks.loading._load_remedies import remedies
from verl_doctor.checks.loading._loading import (
    GIB,
    LOAD_FORMAT,
    VLLM,
    job,
    memory_left,
    named,
    readers,
    speeds,
    storage,
)
from verl_doctor.checks.shared.configuration import NODES, number_of
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.collectors.vllm.loading import VllmLoading
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_FEW_SECONDS = 20  # too few to act on
_RATIO = 1.5  # below it, the way of reading is not the cause
_LONG = 120  # seconds that weights may take at the path's own speed
_NFS = storage("nfs4", shared=True, read_ahead=128 * 1024)


def _example(
    where: ModelStorage, speed: LoadSpeed, *words: str, gib: int = 200, vllm: VllmLoading = VLLM
) -> tuple[object, ...]:
    packages = Packages(
        (Distribution(name="runai-model-streamer", version="0.15.0", location="/env/runai.dist-info"),)
    )
    memory = HostMemory(total=gib * GIB, available=gib * GIB)
    return where, speed, job(*words), vllm, packages, SharedMemory(size=100 * GIB, free=100 * GIB), memory


def _examples() -> list[Example]:
    return [
        Example("a local disk that reads ahead", _example(storage(), speeds(1800, 2100))),
        Example("a fast disk, mapped at half its speed", _example(storage(), speeds(1500, 3000))),
        Example("nearly all is in memory", _example(replace(_NFS, cached=15 * GIB), speeds(60, 900))),
        Example(
            "mapped over NFS",
            _example(_NFS, speeds(40, 900)),
            "16.0 GiB of weights load at 40.0 MiB/s, but nfs4 (/models) delivers 900 MiB/s",
        ),
        Example(
            "verl can copy the model",
            _example(_NFS, speeds(40, 900)),
            "reading takes 7 min and could take 18 s",
        ),
        Example(
            "vLLM reads weights too",
            _example(_NFS, speeds(40, 900), f"{LOAD_FORMAT}=auto"),
            "22 times as fast",
        ),
        Example("more than the memory holds", _example(_NFS, speeds(40, 900), gib=8), "load at 40.0 MiB/s"),
        Example(
            "a disk with a small read-ahead",
            _example(storage(read_ahead=128 * 1024), speeds(150, 2000)),
            "13 times as fast",
        ),
        Example(
            "the share itself is slow",
            _example(_NFS, speeds(50, 60)),
            "nfs4 (/models) delivers only 60.0 MiB/s",
        ),
    ]


@check("LOAD114", severity="warning", cost="live", examples=_examples)
def loading_slower_than_disk(
    storage: ModelStorage,
    speed: LoadSpeed,
    configuration: Configuration | Unknown,
    vllm: VllmLoading | Unknown,
    packages: Packages | Unknown,
    shm: SharedMemory | Unknown,
    memory: HostMemory | Unknown,
    limits: HostLimits | Unknown,
) -> Iterator[Finding]:
    """The weights load far more slowly than their path allows, or the path itself is slow.

    ## Why it matters

    Loaders map weights and fetch them page fault by page fault. On a local disk the kernel reads ahead;
    over a network, or with a small read-ahead, each fault is a round trip, and a model that the storage
    could deliver in seconds takes tens of minutes, on every start. This rule reads up to 240 MiB of
    weights that are not cached, in each way, and then removes them from the page cache again. Storage
    that has its own cache looks faster than it is for data that has not been read yet.

    ## How to fix

    Before the job, read the weights with large parallel requests: `verl-doctor warmup --model DIR`. The
    finding lists what the installed verl and vLLM offer besides, and the gain. `load_format=safetensors`
    instead of `auto` changes nothing: it reads safetensors in the same way.
    """
    left = memory_left(memory, limits)
    who = readers(configuration, 1)
    prediction = reading(storage, speed, len(who), fits=storage.bytes <= left)
    if prediction is None:
        return
    mapped = rate(speed.mapped)
    options = list(remedies(storage, left, configuration, vllm, packages, shm))
    evidence = Evidence(
        found=f"{in_words(speed)}; " + "; ".join(_settings(storage)),
        wanted=_prediction(prediction, named(who), number_of(configuration, NODES) if storage.shared else 1),
        read_from=f"{storage.folder}, cold parts of it",
    )
    if prediction.gain >= _FEW_SECONDS and speed.best >= _RATIO * mapped:
        yield Finding(
            (
                f"{in_bytes(storage.cold)} of weights load at {in_bytes(mapped)}/s, but {storage.where} "
                f"delivers {in_bytes(speed.best)}/s ({speed.best / mapped:.0f} times as fast): reading "
                f"takes {in_seconds(prediction.cold)} and could take {in_seconds(prediction.ahead)}"
            ),
            evidence,
            subject=Subject("model", storage.folder),
            remedy="; or ".join(options) + f" (saves {in_seconds(prediction.gain)} of each start)",
        )
    elif storage.cold / speed.best >= _LONG:
        yield Finding(
            (
                f"{storage.where} delivers only {in_bytes(speed.best)}/s: {in_bytes(storage.cold)} of "
                f"weights take {in_seconds(prediction.cold)}"
            ),
            evidence,
            subject=Subject("model", storage.folder),
            remedy="; or ".join(options) or "keep the weights on a faster disk",
        )


def _settings(storage: ModelStorage) -> Iterator[str]:
    """The file system's read settings."""
    yield storage.where
    if storage.read_ahead is not None:
        yield f"read-ahead {in_bytes(storage.read_ahead)}"
    yield from storage.options


def _prediction(prediction: Reading, who: str, nodes: int) -> str:
    together = f" on one node; {nodes} that read at once share the storage's bandwidth" if nodes > 1 else ""
    return (
        f"{who} together: {in_seconds(prediction.cold)} now, {in_seconds(prediction.ahead)} at the "
        f"path's speed, {in_seconds(prediction.warm)} from memory (reading alone; predicted{together})"
    )
