"""Recommended settings, computed, not measured, if a machine has less than the launch script requests."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import GPUS, WORKERS
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.resources import Resources

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_OFFLOAD = (
    f"{_ACTOR}.fsdp_config.param_offload",
    f"{_ACTOR}.fsdp_config.optimizer_offload",
    "actor_rollout_ref.ref.fsdp_config.param_offload",
)
_MIB_A_SAMPLE = 20_000  # of a GPU's memory, for each sample of a micro batch
_LEAST_SAMPLES = 4  # of one prompt: with fewer, a group's advantages mean little
_LEAST_SEQUENCES = 16
_LEAST_UTILISATION = 0.3


def recommended(configuration: Configuration, resources: Resources) -> list[str]:
    """Overrides of keys that this verl has, with which the job requests no more than this machine has."""
    return [
        f"{key}={value}"
        for key, value in _settings(configuration, resources)
        if configuration.has(key) and configuration.get(key) != value
    ]


def relief(configuration: Configuration) -> list[str]:
    """Overrides with which the job needs about half of the memory at a time, on the same number of GPUs."""
    gpus = configuration.number(GPUS)
    settings = [*_batches(configuration, int(gpus), 0.5, 0), *_rollout(configuration, 0.5)] if gpus else []
    return [
        f"{key}={value}"
        for key, value in settings
        if configuration.has(key) and configuration.get(key) != value
    ]


def workers_for(resources: Resources) -> int | None:
    """The number of agent workers that leaves half of the CPUs to trainers, rollout servers and Ray."""
    return None if resources.cpus is None else max(1, int(resources.cpus / 2))


def _settings(configuration: Configuration, resources: Resources) -> Iterator[tuple[str, object]]:
    requested, gpus = configuration.number(GPUS), len(resources.gpus or ())
    workers, wanted = workers_for(resources), configuration.number(WORKERS)
    if not requested or not gpus or requested <= gpus:
        return
    share = gpus / requested
    yield GPUS, gpus
    tensor = configuration.number(f"{_ROLLOUT}.tensor_model_parallel_size")
    if tensor:
        yield (
            f"{_ROLLOUT}.tensor_model_parallel_size",
            max(n for n in range(1, gpus + 1) if n <= tensor and not gpus % n),
        )
    if configuration.get(f"{_ACTOR}.strategy") in ("fsdp", "fsdp2"):
        for key in _OFFLOAD:
            yield key, True
    yield from _batches(
        configuration, gpus, share, min((gpu.memory for gpu in resources.gpus or ()), default=0)
    )
    yield from _rollout(configuration, share)
    if workers is not None and wanted and wanted > workers:
        yield WORKERS, workers


def _batches(
    configuration: Configuration, gpus: int, share: float, memory: int
) -> Iterator[tuple[str, object]]:
    """Yield batches in proportion to the GPUs, and micro batches by the GPU's memory in MiB.

    The batches are powers of two so that they divide.

    With a `memory` of 0 the micro batches stay as they are.
    """
    batch, mini = (
        configuration.number("data.train_batch_size"),
        configuration.number(f"{_ACTOR}.ppo_mini_batch_size"),
    )
    micro = configuration.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    if not batch or not mini:
        return
    smaller = gpus * _power_of_two(batch * share / gpus)
    part = gpus * _power_of_two(min(mini * share, smaller) / gpus)
    yield "data.train_batch_size", smaller
    yield f"{_ACTOR}.ppo_mini_batch_size", part
    if micro and memory:
        most = _power_of_two(min(micro, memory / _MIB_A_SAMPLE, part / gpus))
        for key in (
            f"{_ACTOR}.ppo_micro_batch_size_per_gpu",
            f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
            "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
        ):
            if configuration.number(key):
                yield key, most


def _rollout(configuration: Configuration, share: float) -> Iterator[tuple[str, object]]:
    """Yield settings with fewer samples and sequences at a time, but at least half.

    They also leave memory for larger shards of the model.
    """
    part = max(share, 0.5)
    samples = configuration.number(f"{_ROLLOUT}.n")
    if samples and samples > _LEAST_SAMPLES:
        yield f"{_ROLLOUT}.n", max(_LEAST_SAMPLES, int(samples * part))
    sequences = configuration.number(f"{_ROLLOUT}.max_num_seqs")
    if sequences:
        yield f"{_ROLLOUT}.max_num_seqs", max(_LEAST_SEQUENCES, int(sequences * part))
    tokens = configuration.number(f"{_ROLLOUT}.max_num_batched_tokens")
    longest = (configuration.number("data.max_prompt_length") or 0) + (
        configuration.number("data.max_response_length") or 0
    )
    if tokens:
        yield f"{_ROLLOUT}.max_num_batched_tokens", int(max(longest, tokens * part))
    memory = configuration.number(f"{_ROLLOUT}.gpu_memory_utilization")
    if memory and memory > _LEAST_UTILISATION:
        yield f"{_ROLLOUT}.gpu_memory_utilization", round(max(_LEAST_UTILISATION, memory - 0.1), 2)


def _power_of_two(number: float) -> int:
    """The largest power of two that is not greater, and at least 1."""
    return 1 << max(0, int(number).bit_length() - 1)
