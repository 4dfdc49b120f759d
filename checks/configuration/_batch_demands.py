"""The conditions that verl puts on batch sizes and on the groups that share a model.

The module finds those that a job breaks, and the nearest settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from verl_doctor.checks.shared.configuration import GPUS, NODES, own_prompts
from verl_doctor.checks.shared.corrections import LEAVE_OUT
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.registries import ESTIMATOR
from verl_doctor.toolkit.collectors.configuration.roles import has_reference
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.text import counted

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
_TENSOR = f"{ROLLOUT}.tensor_model_parallel_size"
LOG_PROBS = f"{ROLLOUT}.log_prob_use_dynamic_bsz"
_GROUPS, _SEQUENCES = "rollout groups", "sequence groups"
IN_ENGINE = "remove padding in the engine"
SEQUENCE = f"{ACTOR}.ulysses_sequence_parallel_size"
REF = "actor_rollout_ref.ref"
_PROGRAM = "/trainer/main_ppo.py"  # another may set what it needs itself
_GPUS = (GPUS, NODES)
_MOST = 1_000_000
# When these demands are made, if not in validation.
_PHASES: Mapping[str, Phase] = {
    **dict.fromkeys(
        (_GROUPS, _SEQUENCES, "micro batch per GPU", "same kind of batches", IN_ENGINE),
        "workers",
    ),
    **dict.fromkeys(("raw chat", "answers of a group"), "first batch"),
}


class Broken(NamedTuple):
    """A demand that is not met: the message, the keys that decide it, and what would meet it."""

    demand: str
    message: str
    keys: tuple[str, ...]
    remedy: str
    certain: bool = True
    values: Mapping[str, object] = MappingProxyType({})
    """The nearest settings that meet the demand."""
    why: str = ""
    others: tuple[Mapping[str, object], ...] = ()
    """Further settings that meet it, where the nearest break another condition."""
    strikes: Phase | None = None
    """When verl makes this demand, where its name alone does not decide that."""

    @property
    def phase(self) -> Phase | None:
        """When verl makes this demand, None for the validation."""
        return self.strikes or _PHASES.get(self.demand)


def broken_demands(configuration: Configuration) -> Iterator[Broken]:
    """Yield the demands that are not met, apart from those on dynamic batches."""
    for unmet in (
        _fixed_batches,
        _kind_of_batches,
        _rollout_groups,
        _sequence_groups,
        _padding,
        _temperature,
        _pass_at_k,
        _raw_chat,
    ):
        yield from unmet(configuration)


def _is_sharded(configuration: Configuration) -> bool:
    """Whether the actor trains with FSDP, of either kind."""
    return configuration.get(f"{ACTOR}.strategy") in ("fsdp", "fsdp2")


def _fixed_batches(configuration: Configuration) -> Iterator[Broken]:
    """Yield what is wrong with batches that are measured in samples."""
    if configuration.get(f"{ACTOR}.use_dynamic_bsz") is False:
        yield from _whole_batch(configuration)
        yield from _micro_batches(configuration)
        if _is_sharded(configuration):
            yield from _mini_batch(configuration)


def _kind_of_batches(configuration: Configuration) -> Iterator[Broken]:
    dynamic = configuration.get(f"{ACTOR}.use_dynamic_bsz")
    if isinstance(dynamic, bool) and configuration.get(LOG_PROBS) is (not dynamic):
        yield Broken(
            "same kind of batches",
            (
                f"{ACTOR}.use_dynamic_bsz is {dynamic}, and {LOG_PROBS} is {not dynamic}: the workers of "
                "this verl need the same"
            ),
            (LOG_PROBS, f"{ACTOR}.use_dynamic_bsz"),
            f"set {LOG_PROBS}={dynamic}",
            values={LOG_PROBS: dynamic},
            why="log probabilities are computed in the same kind of batches as the update",
        )


def _rollout_groups(configuration: Configuration) -> Iterator[Broken]:
    gpus = product_of(configuration, *_GPUS)
    tensor = configuration.number(_TENSOR)
    if not gpus or not tensor or configuration.get("actor_rollout_ref.hybrid_engine") is False:
        return
    if gpus % tensor == 0:
        yield from _wide_groups(configuration, gpus, tensor)
        return
    groups = _nearest_divisor(int(gpus), int(tensor))
    yield Broken(
        _GROUPS,
        f"{counted(int(gpus), 'GPU')} cannot be divided into rollout groups of {tensor:g}",
        (*_GPUS, _TENSOR),
        "choose a tensor_model_parallel_size that divides the number of GPUs",
        values={_TENSOR: groups},
        why=f"{counted(int(gpus), 'GPU')} = {counted(int(gpus / groups), 'group')} of {groups}",
        others=tuple({_TENSOR: size} for size in _divisors_by_distance(int(gpus), int(tensor))[1:4]),
    )


def _sequence_groups(configuration: Configuration) -> Iterator[Broken]:
    gpus, sequence = product_of(configuration, *_GPUS), configuration.number(SEQUENCE)
    if gpus and sequence and sequence > gpus and _is_sharded(configuration):
        yield Broken(
            _SEQUENCES,
            f"each sequence is split over {sequence:g} GPUs, and the job has {counted(int(gpus), 'GPU')}",
            (SEQUENCE, *_GPUS),
            f"set {SEQUENCE} to at most {gpus:g}",
            values={SEQUENCE: int(gpus)},
            why=f"one group of {counted(int(gpus), 'GPU')}" if gpus > 1 else "no sequence is split",
        )


def _padding(configuration: Configuration) -> Iterator[Broken]:
    """Yield what the actor's configuration demands, and what the engine of each model demands by itself."""
    padding = "actor_rollout_ref.model.use_remove_padding"
    demands = [("remove padding", ACTOR, {"fsdp"}), (IN_ENGINE, ACTOR, {"fsdp2"})]
    if has_reference(configuration):
        demands.append((IN_ENGINE, REF, {"fsdp", "fsdp2"}))
    for demand, role, strategies in demands if configuration.get(padding) is False else ():
        key = f"{role}.ulysses_sequence_parallel_size"
        sequence = configuration.number(key)
        if sequence and sequence > 1 and configuration.get(f"{role}.strategy") in strategies:
            shown = f"ref.ulysses_sequence_parallel_size={sequence:g}" if role == REF else f"{sequence:g}"
            yield Broken(
                demand,
                f"sequence parallelism ({shown}) needs {padding}=True",
                (key, padding),
                f"set {padding}=True",
                values={padding: True},
                why="sequences are split only where rows have no padding",
            )


def _temperature(configuration: Configuration) -> Iterator[Broken]:
    samples = f"{ROLLOUT}.val_kwargs.do_sample"
    if configuration.get(samples) is True and configuration.number(f"{ROLLOUT}.temperature") == 0:
        yield Broken(
            "temperature",
            f"validation samples, but {ROLLOUT}.temperature is 0",
            (samples, f"{ROLLOUT}.temperature"),
            f"set {samples}=False, or a temperature above 0",
            values={samples: False},
            why="at temperature 0 nothing is sampled",
        )


def _pass_at_k(configuration: Configuration) -> Iterator[Broken]:
    answers = f"{ROLLOUT}.n"
    if configuration.get(ESTIMATOR) == "grpo_passk" and configuration.number(answers) == 1:
        yield Broken(
            "answers of a group",
            f"{ESTIMATOR}=grpo_passk compares the answers to a prompt, and {answers} is 1",
            (ESTIMATOR, answers),
            f"set {answers} to 2 or more",
            values={answers: 2},
            why="the advantage is that of the best answer over the second best",
        )


def _raw_chat(configuration: Configuration) -> Iterator[Broken]:
    if (
        configuration.get(f"{ROLLOUT}.mode") == "async"
        and configuration.get("data.return_raw_chat") is False
        and not own_prompts(configuration)
        and configuration.program.endswith(_PROGRAM)
    ):
        yield Broken(
            "raw chat",
            (
                "an asynchronous rollout reads the messages of each row, and data.return_raw_chat=False "
                "leaves them out"
            ),
            (f"{ROLLOUT}.mode", "data.return_raw_chat"),
            "set data.return_raw_chat=True",
            values={"data.return_raw_chat": True},
            why="the rollout applies the chat template to the messages itself",
        )


def dynamic_batches(configuration: Configuration, *, padded: bool) -> Iterator[Broken]:
    """Yield batches, measured in tokens, without room for the longest row.

    Without padding, no row may actually be that long.
    """
    prompt, response = (
        configuration.number("data.max_prompt_length"),
        configuration.number("data.max_response_length"),
    )
    sequence = configuration.number(SEQUENCE) or 1
    if not prompt or not response or not _is_sharded(configuration):
        return
    row = prompt + response
    for switch, key in (
        (f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu"),
        (f"{ROLLOUT}.log_prob_use_dynamic_bsz", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"),
    ):
        most = configuration.number(key)
        own = key.startswith(ACTOR) or configuration.override_of(key) is not None
        if configuration.get(switch) is True and own and most and most * sequence < row:
            tokens = f"the {row:g} tokens of a row" if padded else f"the {row:g} tokens that a row may have"
            yield Broken(
                "row in a batch",
                f"{key.rpartition('.')[2]} ({most:g}) is less than {tokens}",
                (key, "data.max_prompt_length", "data.max_response_length"),
                f"set {key} to {-(-row // sequence):g} or more",
                certain=padded,
                values={key: -(-int(row) // int(sequence))},
                why=f"a row has {prompt:g} + {response:g} = {row:g} tokens, on {sequence:g} GPUs",
            )


def _wide_groups(configuration: Configuration, gpus: float, tensor: float) -> Iterator[Broken]:
    """A rollout group holds each of its data-parallel and pipeline-parallel parts."""
    more = [f"{ROLLOUT}.{name}" for name in ("data_parallel_size", "pipeline_model_parallel_size")]
    wide = [key for key in more if (configuration.number(key) or 0) > 1]
    size = tensor * math.prod(configuration.number(key) or 1 for key in more)
    if wide and gpus % size:
        yield Broken(
            _GROUPS,
            f"{counted(int(gpus), 'GPU')} cannot be divided into rollout groups of {size:g}",
            (*wide, _TENSOR, *_GPUS),
            f"set {wide[0]}=1, or choose sizes whose product divides the number of GPUs",
            values=dict.fromkeys(wide, 1),
            why="each group is one engine on as many GPUs as it has parts",
        )


def _whole_batch(configuration: Configuration) -> Iterator[Broken]:
    gpus = product_of(configuration, *_GPUS)
    batch, samples = configuration.number("data.train_batch_size"), configuration.number(f"{ROLLOUT}.n")
    mini = configuration.number(f"{ACTOR}.ppo_mini_batch_size")
    if (
        batch
        and samples
        and gpus
        and configuration.get(f"{ACTOR}.strategy") != "megatron"
        and batch * samples % gpus
    ):
        yield Broken(
            "divisible by the GPUs",
            (
                f"{batch:g} * {samples:g} = {batch * samples:g} samples cannot be divided among "
                f"{counted(int(gpus), 'GPU')}"
            ),
            ("data.train_batch_size", f"{ROLLOUT}.n", *_GPUS),
            (
                "choose a data.train_batch_size so that its product with rollout.n is a multiple of the "
                "number of GPUs"
            ),
            values={
                "data.train_batch_size": (
                    prompts := _nearest_batch(int(batch), int(samples), int(gpus), int(mini or 1))
                )
            },
            why=(
                f"{prompts} * {samples:g} = {prompts * samples:g} samples are {prompts * samples / gpus:g} "
                f"for each of {gpus:g} GPUs"
            ),
        )
    if batch and mini and batch < mini:
        yield Broken(
            "at least a mini batch",
            f"data.train_batch_size ({batch:g}) is less than {ACTOR}.ppo_mini_batch_size ({mini:g})",
            ("data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size"),
            f"set {ACTOR}.ppo_mini_batch_size to {batch:g} or less",
            values={f"{ACTOR}.ppo_mini_batch_size": int(batch)},
            why=f"a batch of {batch:g} prompts is one mini batch of {batch:g}",
            others=({"data.train_batch_size": int(mini)},),
        )


def _micro_batches(configuration: Configuration) -> Iterator[Broken]:
    wanted = [(ACTOR, "ppo_micro_batch_size"), (ROLLOUT, "log_prob_micro_batch_size")]
    if has_reference(configuration):
        wanted.append((REF, "log_prob_micro_batch_size"))
    for section, name in wanted:
        old, new = f"{section}.{name}", f"{section}.{name}_per_gpu"
        if not (configuration.has(old) and configuration.has(new)):
            continue
        values = (configuration.get(old), configuration.get(new))
        if values == (None, None):
            micro = _micro_batch_of_actor(configuration)
            yield Broken(
                "one of two",
                f"neither {new} nor {old} is set",
                (new, old),
                f"set {new}",
                values={new: micro},
                why=f"{micro} at a time, as for the actor"
                if micro > 1
                else "1 at a time takes the least memory",
            )
        elif values[1] is None and section != REF and type(total := values[0]) is int and total > 0:
            each = _micro_batch_on_each(configuration, total)
            yield Broken(
                "micro batch per GPU",
                f"the workers of this verl need {new}: {old} is no longer divided among the GPUs",
                (old, new),
                f"set {new} instead of {old}",
                values={old: LEAVE_OUT if configuration.override_of(old) else None, new: each},
                why=f"{each} at a time on each GPU",
            )
        elif all(isinstance(value, int) for value in values):
            yield Broken(
                "not both",
                f"{old} and {new} are both set",
                (old, new),
                f"remove {old}, which is deprecated",
                values={old: LEAVE_OUT if configuration.override_of(old) else None},
                why=f"{new}={configuration.get(new)} stays",
            )


def _mini_batch(configuration: Configuration) -> Iterator[Broken]:
    """Yield what is wrong with the part of a mini batch on one GPU, as FSDP workers compute it."""
    gpus = product_of(configuration, *_GPUS)
    mini, samples = (
        configuration.number(f"{ACTOR}.ppo_mini_batch_size"),
        configuration.number(f"{ROLLOUT}.n"),
    )
    sequence = configuration.number(SEQUENCE) or 1
    micro = configuration.number(f"{ACTOR}.ppo_micro_batch_size_per_gpu")
    if not mini or not samples or not gpus or gpus < sequence:
        return
    each = mini * samples // (gpus // sequence)
    keys = (f"{ACTOR}.ppo_mini_batch_size", f"{ROLLOUT}.n", *_GPUS)
    if each == 0:
        yield Broken(
            "mini batch per GPU",
            f"a mini batch of {mini:g} * {samples:g} samples is smaller than the number of GPUs ({gpus:g})",
            keys,
            "choose a larger ppo_mini_batch_size",
            values={f"{ACTOR}.ppo_mini_batch_size": (least := -(-int(gpus // sequence) // int(samples)))},
            why=(
                f"{least} * {samples:g} = {least * samples:g} samples are "
                f"{least * samples // (gpus // sequence):g} for each of {gpus / sequence:g}"
            ),
        )
    elif micro and each % micro:
        yield Broken(
            "mini batch of micro batches",
            f"the {each:g} samples of a mini batch on each GPU are not a multiple of {micro:g}",
            (f"{ACTOR}.ppo_micro_batch_size_per_gpu", *keys),
            f"choose a ppo_micro_batch_size_per_gpu that divides {each:g}",
            values={
                f"{ACTOR}.ppo_micro_batch_size_per_gpu": (smaller := divisor_up_to(int(each), int(micro)))
            },
            why=f"{each:g} = {each / smaller:g} * {smaller}",
        )


def divisor_up_to(number: int, most: int) -> int:
    """The largest divisor of a number that is no larger than `most`."""
    return next(size for size in range(max(1, min(number, most)), 0, -1) if number % size == 0)


def _nearest_divisor(number: int, wanted: int) -> int:
    return _divisors_by_distance(number, wanted)[0]


def _divisors_by_distance(number: int, wanted: int) -> list[int]:
    """The divisors, nearest to the expected number first; of two the larger, which spreads memory wider."""
    divisors = (size for size in range(1, number + 1) if number % size == 0)
    return sorted(divisors, key=lambda size: (abs(size - wanted), -size))


def _nearest_batch(batch: int, samples: int, gpus: int, mini: int) -> int:
    """The number of prompts nearest to `batch` that fits the mini batch and the GPUs.

    It holds a mini batch, and its samples divide among the GPUs; of two such numbers, it is the smaller.
    """
    step = gpus // math.gcd(gpus, samples)
    below = batch // step * step
    return below if below >= max(mini, 1) and batch - below <= step // 2 else below + step


def _micro_batch_of_actor(configuration: Configuration) -> int:
    return int(configuration.number(f"{ACTOR}.ppo_micro_batch_size_per_gpu") or 1)


def _micro_batch_on_each(configuration: Configuration, total: int) -> int:
    """Each GPU's part of a micro batch of all GPUs.

    It is less if necessary, so that the samples of a mini batch are a multiple of it.
    """
    ranks = (product_of(configuration, *_GPUS) or 1) // (configuration.number(SEQUENCE) or 1)
    ranks = max(1, int(ranks))
    mini = product_of(configuration, f"{ACTOR}.ppo_mini_batch_size", f"{ROLLOUT}.n") or 0
    return divisor_up_to(int(mini) // ranks or 1, max(1, total // ranks))


def product_of(configuration: Configuration, *keys: str) -> float | None:
    """The product of settings; None unless all are plausible numbers of GPUs, nodes or samples.

    A plausible number is whole, and neither 0 nor absurd.
    """
    product = 1.0
    for key in keys:
        value = configuration.number(key)
        if not value or not 0 < value <= _MOST or value % 1:
            return None
        product *= value
    return product
