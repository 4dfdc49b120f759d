"""Which parts of a verl job read a model's weights, and how; shared by the rules about loading.

Every process of FSDP runs transformers' `from_pretrained` over the whole model, the first to keep the weights
and the others on the meta device. Those read the weights as well: measured with transformers 4.57.3 and
5.10.4, the page cache held all of a cold model afterwards. The processes of a node share one copy in the page
cache, so the disk delivers it only once if it fits into memory.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Any

from verl_doctor.checks.loading._weights import shard
from verl_doctor.checks.shared.configuration import NODES, configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.configuration.roles import has_reference
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed, Speed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.collectors.vllm.engine_arguments import SECTION
from verl_doctor.toolkit.collectors.vllm.loading import STRATEGY, VllmLoading
from verl_doctor.toolkit.facts import Unknown

LOAD_FORMAT = "actor_rollout_ref.rollout.load_format"
SHARED_MEMORY = "actor_rollout_ref.model.use_shm"
STRATEGY_KEY = f"{SECTION}.{STRATEGY}"
GIB = 1 << 30

# Each format with the package that vLLM imports for it (vllm setup.py extras, model_executor/model_loader).
PACKAGE_OF = {
    "fastsafetensors": "fastsafetensors",
    "instanttensor": "instanttensor",
    "runai_streamer": "runai-model-streamer",
    "runai_streamer_sharded": "runai-model-streamer",
    "tensorizer": "tensorizer",
}

VLLM = VllmLoading(
    version="0.31.0",
    formats=("auto", "dummy", "fastsafetensors", "hf", "pt", "runai_streamer", "safetensors"),
    strategies=("eager", "lazy", "prefetch"),
    reads_ahead_on=("lustre", "nfs", "nfs4"),
    threads=True,
    read_from="/env/vllm/model_executor/model_loader/weight_utils.py",
)
SEVEN_BILLION = ModelFiles(
    folder="/models/qwen", files=tuple(shard(f"model-{number}.safetensors", 4 * GIB) for number in range(4))
)


def storage(kind: str = "xfs", cached: int | None = 0, **other: Any) -> ModelStorage:
    """The storage of the weights in the examples."""
    settings = {"mounted_on": "/models", "device": "filer:/models", "bytes": SEVEN_BILLION.bytes, **other}
    return ModelStorage(folder=SEVEN_BILLION.folder, kind=kind, cached=cached, **settings)


def speeds(mapped: int, best: int) -> LoadSpeed:
    """The speeds measured in the examples, in MiB/s."""
    faults, side_by_side, direct, warm = (
        Speed(bytes=rate << 20, seconds=1.0) for rate in (mapped, best, best * 9 // 10, 5000)
    )
    return LoadSpeed(
        folder=SEVEN_BILLION.folder, mapped=faults, parallel=side_by_side, direct=direct, warm=warm
    )


@dataclass(frozen=True)
class WeightReader:
    """A part of the job that reads all weights, with this many processes on each node."""

    who: str
    processes: int


def load_format(configuration: Configuration | Unknown) -> str:
    """The rollout's load_format; "" if unknown."""
    value = None if isinstance(configuration, Unknown) else configuration.get(LOAD_FORMAT)
    return value.lower() if isinstance(value, str) else ""


def engine_reads(configuration: Configuration | Unknown) -> bool:
    """Whether vLLM certainly reads weights itself.

    With "dummy", verl's default, it gets them from the trainer.
    """
    format_ = load_format(configuration)
    return bool(format_) and not format_.startswith("dummy")


def not_in_shared_memory(configuration: Configuration) -> str | None:
    """Why a rule about copies in shared memory is irrelevant; None if the job makes one."""
    return None if configuration.get(SHARED_MEMORY) is True else f"{SHARED_MEMORY} is not set"


def copies_once(configuration: Configuration | Unknown) -> bool:
    """Whether `use_shm` lets one process copy before the others look.

    That process is verl's driver, on the only node (see LOAD116).
    """
    return not isinstance(configuration, Unknown) and configuration.number(NODES) == 1


def has_adapters(configuration: Configuration) -> bool:
    """Whether LoRA is trained.

    The trainer then passes only adapters to vLLM, which reads the base weights itself.
    """
    return any(
        (configuration.number(key) or 0) > 0
        for key in ("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank")
    )


def readers(configuration: Configuration | Unknown, gpus: int) -> tuple[WeightReader, ...]:
    """The parts that read the actor's model, in order, on a node with this many of the job's GPUs."""
    gpus = max(gpus, 1)
    if isinstance(configuration, Unknown):
        return (WeightReader("the job", gpus),)
    found = [
        WeightReader("the actor" if configuration.has("actor_rollout_ref.actor") else "the trainer", gpus)
    ]
    if has_reference(configuration) and not has_adapters(configuration):
        found.append(WeightReader("the reference", gpus))
    same = configuration.get("critic.model.path") == configuration.get("actor_rollout_ref.model.path")
    if same and configuration.get("algorithm.adv_estimator") == "gae":
        found.append(WeightReader("the critic", gpus))
    if engine_reads(configuration):
        found.append(WeightReader("vLLM", gpus))
    return tuple(found)


def named(found: tuple[WeightReader, ...]) -> str:
    """The readers as text: "the actor, the reference and vLLM"."""
    *first, last = (reader.who for reader in found)
    return f"{', '.join(first)} and {last}" if first else last


def word_of(configuration: Configuration | Unknown, key: str) -> OverrideWord | None:
    """The word that sets a key, directly or within a dictionary of `engine_kwargs`."""
    if isinstance(configuration, Unknown):
        return None
    above = key.rpartition(".")[0]
    return configuration.override_of(key) or configuration.override_of(above)


def warmup(folder: str) -> str:
    """The command that reads a model into the page cache."""
    return f"verl-doctor warmup --model {shlex.quote(folder)}"


def memory_left(memory: HostMemory | Unknown, limits: HostLimits | Unknown) -> float:
    """Bytes of memory, page cache included, that a job started here may still take; infinite if unknown."""
    amounts = [] if isinstance(memory, Unknown) else [memory.available]
    group = None if isinstance(limits, Unknown) else limits.shell.groups.memory
    amounts += [int(group.memory_left)] if group else []
    return min((amount for amount in amounts if amount is not None), default=math.inf)


def job(*words: str) -> Configuration:
    """The configuration of the examples, with these overrides."""
    return configured(*words)[0]
