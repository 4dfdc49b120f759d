"""Batches that verl's training engine cuts into micro batches of equal size.

The engine refuses the first batch that is no multiple of the micro batch (`prepare_micro_batches` in
verl/workers/engine/utils.py). A critic's batches are always measured in tokens there: verl passes neither
`critic.use_dynamic_bsz` nor `critic.ppo_micro_batch_size_per_gpu` to its engine (0.8.0 to 0.9.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.checks.configuration._batch_demands import (
    ACTOR,
    LOG_PROBS,
    REF,
    ROLLOUT,
    Broken,
    divisor_up_to,
    product_of,
)
from verl_doctor.checks.shared.configuration import GPUS, NODES, own_prompts
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.roles import (
    has_critic,
    has_no_adapter,
    has_reference,
    no_update,
)
from verl_doctor.toolkit.rule import Phase

WHOLE_MICRO_BATCHES = "whole micro batches"
_PROGRAM = "/verl/trainer/main_ppo.py"  # others cut their batches elsewhere
_ACTOR_MINI, _CRITIC_MINI = f"{ACTOR}.ppo_mini_batch_size", "critic.ppo_mini_batch_size"
_ANSWERS, _PROMPTS = f"{ROLLOUT}.n", "data.train_batch_size"
_OFF = (False, None, MISSING)


@dataclass(frozen=True)
class _Cut:
    """One kind of batch: what it is, the samples of all GPUs, and the keys that decide how it is cut."""

    what: str
    samples: float
    decided_by: tuple[str, ...]
    micro: str
    dynamic: str
    model: str
    phase: Phase


def micro_batches(configuration: Configuration) -> Iterator[Broken]:
    """Yield micro batches of a fixed size that do not divide what a GPU gets."""
    gpus = product_of(configuration, GPUS, NODES)
    if not gpus or not configuration.program.endswith(_PROGRAM) or no_update(configuration):
        return
    for cut in (*_updates(configuration), *_log_probs(configuration, int(gpus))):
        sequence, micro = _sharing_a_sequence(configuration, cut.model), configuration.number(cut.micro)
        if (
            not micro
            or not sequence
            or gpus % sequence
            or configuration.get(cut.dynamic) is not False
            or configuration.get(f"{cut.model}.strategy") not in ("fsdp", "fsdp2")
        ):
            continue
        each, rest = divmod(cut.samples, gpus // sequence)
        if each and not rest and each % micro:
            smaller = divisor_up_to(int(each), int(micro))
            yield Broken(
                WHOLE_MICRO_BATCHES,
                f"the {each:g} samples of {cut.what} on each GPU are not a multiple of {micro:g}",
                (cut.micro, *cut.decided_by, GPUS, NODES),
                f"choose a {cut.micro} that divides {each:g}",
                values={cut.micro: smaller},
                why=f"{each:g} = {each / smaller:g} * {smaller}",
                strikes=cut.phase,
            )


def _sharing_a_sequence(configuration: Configuration, model: str) -> float | None:
    """The number of GPUs that share a sequence, None if unknown. The old key, above 1, has precedence."""
    name = "ulysses_sequence_parallel_size"
    old, new = (
        1 if configuration.get(key) is MISSING else configuration.number(key)
        for key in (f"{model}.{name}", f"{model}.fsdp_config.{name}")
    )
    return old if old is None or old > 1 else new


def _updates(configuration: Configuration) -> Iterator[_Cut]:
    if samples := product_of(configuration, _ACTOR_MINI, _ANSWERS):
        yield _Cut(
            what="a mini batch",
            samples=samples,
            decided_by=(_ACTOR_MINI, _ANSWERS),
            micro=f"{ACTOR}.ppo_micro_batch_size_per_gpu",
            dynamic=f"{ACTOR}.use_dynamic_bsz",
            model=ACTOR,
            phase="first update",
        )


def _log_probs(configuration: Configuration, gpus: int) -> Iterator[_Cut]:
    """The batches for log probabilities, where the trainer neither fills nor filters them."""
    prompts = _ACTOR_MINI if configuration.get("trainer.v1.trainer_mode") == "separate_async" else _PROMPTS
    samples = product_of(configuration, prompts, _ANSWERS)
    minis = [_ACTOR_MINI, *([_CRITIC_MINI] if has_critic(configuration) else [])]
    parts = [product_of(configuration, mini, _ANSWERS) for mini in minis]
    if (
        not samples
        or not all(parts)
        or samples % math.lcm(gpus, *(int(part) for part in parts if part))
        or configuration.get("algorithm.filter_groups.enable") not in _OFF
        or configuration.get("data.gen_batch_size") not in (None, MISSING, configuration.number(_PROMPTS))
        or own_prompts(configuration)
    ):
        return
    models = []
    if configuration.get("algorithm.rollout_correction.bypass_mode") in _OFF:
        models.append((ROLLOUT, LOG_PROBS, ACTOR, "a batch"))
    # With an adapter, the actor without it is the reference.
    if has_reference(configuration) and has_no_adapter(configuration):
        models.append((REF, f"{REF}.log_prob_use_dynamic_bsz", REF, "the reference's batch"))
    for section, dynamic, model, what in models:
        yield _Cut(
            what=what,
            samples=samples,
            decided_by=(prompts, _ANSWERS),
            micro=f"{section}.log_prob_micro_batch_size_per_gpu",
            dynamic=dynamic,
            model=model,
            phase="first batch",
        )
