"""How to load faster with the installed vLLM and verl: only settings that they read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import (
    LOAD_FORMAT,
    PACKAGE_OF,
    SHARED_MEMORY,
    STRATEGY_KEY,
    copies_once,
    engine_reads,
    warmup,
)
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.collectors.vllm.loading import VllmLoading
from verl_doctor.toolkit.facts import Unknown

_LONG_READ_AHEAD = 4096  # KiB


def remedies(
    storage: ModelStorage,
    left: float,
    configuration: Configuration | Unknown,
    vllm: VllmLoading | Unknown,
    packages: Packages | Unknown,
    shm: SharedMemory | Unknown,
) -> Iterator[str]:
    """Yield the remedies, best first, if `left` bytes of memory may be used."""
    if storage.bytes <= left:
        yield f"run {warmup(storage.folder)} before the job"
        if _takes_copy(configuration, storage, shm):
            yield f"set {SHARED_MEMORY}=True"
    elif storage.shared:
        yield f"copy {storage.folder} to a disk of each node: the page cache cannot keep it"
    if storage.read_ahead is not None and storage.read_ahead < _LONG_READ_AHEAD * 1024 and not storage.shared:
        yield (
            f"as root, set the read-ahead to {_LONG_READ_AHEAD} KiB (blockdev --setra "
            f"{2 * _LONG_READ_AHEAD} {storage.device})"
        )
    if not isinstance(configuration, Unknown) and engine_reads(configuration):
        yield from _of_engine(configuration, vllm, packages)


def _takes_copy(
    configuration: Configuration | Unknown, storage: ModelStorage, shm: SharedMemory | Unknown
) -> bool:
    """Whether this verl can be set to copy a model into shared memory, safely, and there is room."""
    if isinstance(configuration, Unknown) or isinstance(shm, Unknown):
        return False
    room = configuration.get(SHARED_MEMORY) is False and storage.bytes <= shm.free
    return room and copies_once(configuration)


def _of_engine(
    configuration: Configuration, vllm: VllmLoading | Unknown, packages: Packages | Unknown
) -> Iterator[str]:
    """Yield what helps vLLM alone, if it reads weights itself."""
    if isinstance(vllm, Unknown) or configuration.get("actor_rollout_ref.rollout.name") != "vllm":
        return
    installed = None if isinstance(packages, Unknown) else packages
    loaders = [
        name
        for name, package in PACKAGE_OF.items()
        if name in vllm.formats and "sharded" not in name and installed is not None and installed.get(package)
    ]
    if "prefetch" in vllm.strategies:
        yield f"set +{STRATEGY_KEY}=prefetch for vLLM itself"
    elif loaders:
        yield f"set {LOAD_FORMAT}={loaders[0]}, which is installed, for vLLM itself"
