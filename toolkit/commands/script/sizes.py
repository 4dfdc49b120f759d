"""Compute the smallest batch that a verl accepts.

It has few samples, divided among GPUs, agents and micro batches as verl does.

verl's requirements (0.3 to 0.9) are in `verl/utils/config.py`, `verl/workers/config/actor.py`, the FSDP and
Megatron workers, and `DataProto.chunk`, which gives each agent loop worker an equal share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING
from verl_doctor.toolkit.commands.script.variant import RecipeBuilder
from verl_doctor.toolkit.text import counted

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_REF = "actor_rollout_ref.ref"
_BATCH, _SAMPLES, _MINI = "data.train_batch_size", f"{_ROLLOUT}.n", f"{_ACTOR}.ppo_mini_batch_size"
_GPUS = ("trainer.n_gpus_per_node", "trainer.nnodes")
_GROUP = 2  # samples per prompt: the fewest that can be compared with each other


@dataclass(frozen=True)
class Sizes:
    """The prompts in a batch, samples per prompt, and prompts in a mini batch."""

    batch: int
    samples: int
    mini: int

    @property
    def all_samples(self) -> int:
        """The number of samples in one step."""
        return self.batch * self.samples


def shrink(changes: RecipeBuilder, rows: int | None = None, gpus: int | None = None) -> None:
    """Request the smallest batch, and reduce everything that depends on it.

    `rows` is the number of rows in the data, `gpus` the number per node if the script does not set it.
    """
    sizes = _now(changes)
    of_node, gpus = gpus, _gpus(changes, gpus)
    replicas = _replicas(changes, gpus)
    if sizes is None or gpus is None or replicas is None:
        changes.kept.append(_undetermined(changes, of_node))
        return
    if (
        changes.value("trainer.v1.trainer_mode") == "separate_async"
        and changes.value("trainer.use_v1") is True
    ):
        changes.kept.append(f"{_BATCH} stays: the trainer separate_async ties it to its own parameters")
        return
    small = _smallest(sizes, replicas, gpus, _whole_micro_batch(changes), rows)
    if small is None:
        return
    why = (
        f"{counted(small.all_samples, 'sample')} a step {'is' if small.all_samples == 1 else 'are'} the "
        f"fewest that verl divides among {counted(gpus, 'GPU')}"
    )
    changes.lower(_BATCH, small.batch, why)
    changes.lower("data.gen_batch_size", small.batch, "a step does not generate more than it trains on")
    changes.lower(_SAMPLES, small.samples, "two samples of a prompt can be compared with each other")
    changes.lower(_MINI, small.mini, f"no more than {_BATCH}")
    _micro_batches(changes, small, replicas)
    _agents(changes, small)


def _now(changes: RecipeBuilder) -> Sizes | None:
    batch, samples, mini = (changes.number(key) for key in (_BATCH, _SAMPLES, _MINI))
    return Sizes(batch, samples, mini) if batch and samples and mini else None


def _gpus(changes: RecipeBuilder, of_node: int | None) -> int | None:
    """Return the number of GPUs of the job; an unknown word may request any number."""
    each, nodes = _each(changes, of_node), _known(changes, _GPUS[1])
    return each * nodes if each and nodes else None


def _each(changes: RecipeBuilder, of_node: int | None) -> int | None:
    return _known(changes, _GPUS[0]) or of_node


def _known(changes: RecipeBuilder, key: str) -> int | None:
    return changes.number(key) if changes.certain(key) else None


def _undetermined(changes: RecipeBuilder, of_node: int | None) -> str:
    """Return the unknown value that the sizes depend on, and how to supply it."""
    if _each(changes, of_node) is None:
        why = f"{_GPUS[0]} is not known from the script; pass --gpus N"
    elif _known(changes, _GPUS[1]) is None:
        why = f"{_GPUS[1]} is not known from the script; try the job on one node with --one-node"
    else:
        why = "the sizes that they depend on are not known from the script"
    return f"the batch sizes stay: {why}, or set the variables that they use in this shell"


def _replicas(changes: RecipeBuilder, gpus: int | None) -> int | None:
    """Return how many copies of the trained model share a batch."""
    if changes.value(f"{_ACTOR}.strategy") == "megatron":
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        keys = [f"{_ACTOR}.megatron.{name}" for name in names]
    else:
        keys = [f"{_ACTOR}.ulysses_sequence_parallel_size"]
    together = 1
    for key in keys:
        size = 1 if changes.value(key) is MISSING else changes.number(key)
        if not size:
            return None
        together *= size
    return gpus // together if gpus and gpus % together == 0 else None


def _whole_micro_batch(changes: RecipeBuilder) -> int | None:
    """Return the deprecated micro batch over all GPUs, which needs a sample for each of them."""
    if changes.value(f"{_ACTOR}.use_dynamic_bsz") is True:
        return None
    return changes.number(f"{_ACTOR}.ppo_micro_batch_size")


def _smallest(
    now: Sizes, replicas: int, gpus: int, whole_micro: int | None, rows: int | None
) -> Sizes | None:
    """Return the fewest samples, in smallest groups, that divide among GPUs and replicas; None if none do."""
    found = []
    for samples in range(min(now.samples, _GROUP), now.samples + 1):
        for batch in range(1, now.batch + 1):
            mini = min(now.mini, batch)
            if rows is not None and batch > rows:
                break
            fits = batch % mini == 0 and mini * samples % replicas == 0 and batch * samples % gpus == 0
            if fits and (whole_micro is None or math.gcd(whole_micro, mini) % gpus == 0):
                found.append(Sizes(batch, samples, mini))
                break
    return min(found, key=lambda sizes: (sizes.all_samples, sizes.samples), default=None)


def _micro_batches(changes: RecipeBuilder, small: Sizes, replicas: int) -> None:
    """Size micro batches to fill the share of one GPU, of a mini batch and of a whole batch."""
    of_mini = small.mini * small.samples // replicas
    of_batch = small.all_samples // replicas
    if changes.value(f"{_ACTOR}.use_dynamic_bsz") is not True:
        _divide(changes, f"{_ACTOR}.ppo_micro_batch_size", small.mini)
        _divide(changes, f"{_ACTOR}.ppo_micro_batch_size_per_gpu", of_mini)
    for section in (_ROLLOUT, _REF):
        if changes.value(f"{section}.log_prob_use_dynamic_bsz") is not True:
            _divide(changes, f"{section}.log_prob_micro_batch_size", small.all_samples)
            _divide(changes, f"{section}.log_prob_micro_batch_size_per_gpu", of_batch)
    if _has_critic(changes):
        changes.lower("critic.ppo_mini_batch_size", small.mini, f"no more than {_BATCH}")
        if changes.value("critic.use_dynamic_bsz") is not True:
            _divide(changes, "critic.ppo_micro_batch_size", small.mini)
            _divide(changes, "critic.ppo_micro_batch_size_per_gpu", of_mini)
            _divide(changes, "critic.forward_micro_batch_size_per_gpu", of_batch)


def _has_critic(changes: RecipeBuilder) -> bool:
    value = changes.value("critic.enable")
    return value is True or (value in (None, MISSING) and changes.value("algorithm.adv_estimator") == "gae")


def _divide(changes: RecipeBuilder, key: str, whole: int) -> None:
    """Change a micro batch to one that divides `whole` evenly."""
    now = changes.number(key)
    if now:
        changes.lower(key, math.gcd(now, whole), f"it must divide {counted(whole, 'sample')}")


def _agents(changes: RecipeBuilder, small: Sizes) -> None:
    """Use as many agent loop workers as can get an equal share of the samples."""
    key = f"{_ROLLOUT}.agent.num_workers"
    now = changes.number(key)
    if now and changes.value(f"{_ROLLOUT}.mode") != "sync":
        shares = math.gcd(now, small.all_samples)
        changes.lower(
            key, shares, f"verl gives each worker an equal share of {counted(small.all_samples, 'sample')}"
        )
