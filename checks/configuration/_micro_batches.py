"""Batches that verl's training engine cuts into micro batches of equal size.

The engine refuses the first batch that is no multiple of the micro batch (`prepare_micro_batches` in
verl/workers/engine/utils.py).
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
    SEQUENCE,
    Broken,
    divisor_up_to,
    product_of,
)
from verl_doctor.checks.shared.configuration import GPUS, NODES
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_critic, has_reference
from verl_doctor.toolkit.rule import Phase

WHOLE_MICRO_BATCHES = "whole micro batches"
_PROGRAM = "/trainer/main_ppo.py"  # others cut their batches elsewhere
_ACTOR_MINI, _CRITIC_MINI = f"{ACTOR}.ppo_mini_batch_size", "critic.ppo_mini_batch_size"
_ANSWERS = f"{ROLLOUT}.n"


@dataclass(frozen=True)
class _Cut:
    """One kind of batch: what it is, the samples of all GPUs, and the keys that decide how it is cut."""

    what: str
    samples: float
    decided_by: tuple[str, ...]
    micro: str
    dynamic: str
    strategy: str
    sequence: str
    phase: Phase = "first update"


def micro_batches(configuration: Configuration) -> Iterator[Broken]:
    """Yield micro batches of a fixed size that do not divide what a GPU gets."""
    gpus = product_of(configuration, GPUS, NODES)
    if not gpus or not configuration.program.endswith(_PROGRAM):
        return
    for cut in (*_updates(configuration), *_log_probs(configuration, int(gpus))):
        sequence, micro = configuration.number(cut.sequence) or 1, configuration.number(cut.micro)
        if (
            not micro
            or gpus % sequence
            or configuration.get(cut.dynamic) is not False
            or configuration.get(cut.strategy) not in ("fsdp", "fsdp2")
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


def _updates(configuration: Configuration) -> Iterator[_Cut]:
    models = [(ACTOR, _ACTOR_MINI, SEQUENCE, "a mini batch")]
    if has_critic(configuration):
        models.append(
            ("critic", _CRITIC_MINI, "critic.ulysses_sequence_parallel_size", "the critic's mini batch")
        )
    for model, mini, sequence, what in models:
        if samples := product_of(configuration, mini, _ANSWERS):
            yield _Cut(
                what=what,
                samples=samples,
                decided_by=(mini, _ANSWERS),
                micro=f"{model}.ppo_micro_batch_size_per_gpu",
                dynamic=f"{model}.use_dynamic_bsz",
                strategy=f"{model}.strategy",
                sequence=sequence,
            )


def _log_probs(configuration: Configuration, gpus: int) -> Iterator[_Cut]:
    """The batches for log probabilities, where the trainer neither fills nor filters them."""
    samples = product_of(configuration, "data.train_batch_size", _ANSWERS)
    minis = [_ACTOR_MINI, *([_CRITIC_MINI] if has_critic(configuration) else [])]
    parts = [product_of(configuration, mini, _ANSWERS) for mini in minis]
    if (
        not samples
        or not all(parts)
        or samples % math.lcm(gpus, *(int(part) for part in parts if part))
        or configuration.get("algorithm.filter_groups.enable") is True
    ):
        return
    models = []
    if configuration.get("algorithm.rollout_correction.bypass_mode") is not True:
        models.append((ROLLOUT, LOG_PROBS, f"{ACTOR}.strategy", SEQUENCE, "a batch"))
    if has_reference(configuration):
        models.append(
            (
                REF,
                f"{REF}.log_prob_use_dynamic_bsz",
                f"{REF}.strategy",
                f"{REF}.ulysses_sequence_parallel_size",
                "the reference's batch",
            )
        )
    for model, dynamic, strategy, sequence, what in models:
        yield _Cut(
            what=what,
            samples=samples,
            decided_by=("data.train_batch_size", _ANSWERS),
            micro=f"{model}.log_prob_micro_batch_size_per_gpu",
            dynamic=dynamic,
            strategy=strategy,
            sequence=sequence,
            phase="first batch",
        )
