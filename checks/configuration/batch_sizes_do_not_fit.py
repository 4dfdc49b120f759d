"""CFG108: batch sizes that verl refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from verl_doctor.checks.shared.configuration import GPUS, NODES, configured, own_prompts, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, effect_of, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, copied
from verl_doctor.toolkit.collectors.configuration.demands import Demands
from verl_doctor.toolkit.collectors.configuration.roles import has_reference, trains
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Phase, Subject, check
from verl_doctor.toolkit.text import counted

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_TENSOR = f"{_ROLLOUT}.tensor_model_parallel_size"
_LOG_PROBS = f"{_ROLLOUT}.log_prob_use_dynamic_bsz"
_GROUPS, _SEQUENCES = "rollout groups", "sequence groups"
_IN_ENGINE = "remove padding in the engine"
_SEQUENCE = f"{_ACTOR}.ulysses_sequence_parallel_size"
# When these demands are made, if not in validation.
_PHASES: Mapping[str, Phase] = {
    **dict.fromkeys(
        (_GROUPS, _SEQUENCES, "micro batch per GPU", "same kind of batches", _IN_ENGINE),
        "workers",
    ),
    "raw chat": "first batch",
}
_PROGRAM = "/trainer/main_ppo.py"  # another may set what it needs itself
_REF = "actor_rollout_ref.ref"
_GPUS = (GPUS, NODES)
_EVERY = Demands(
    dict.fromkeys(
        (
            "divisible by the GPUs", "divisible by model parallelism", "at least a mini batch", "one of two", "not both",
            "mini batch per GPU", "micro batch per GPU", "same kind of batches", "mini batch of micro batches", "rollout groups", "sequence groups", "remove padding", _IN_ENGINE, "temperature",
            "row in a batch", "raw chat",
        ),
        "/env/verl/utils/config.py:111",
    )
)  # fmt: skip


class _Broken(NamedTuple):
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


def _with_own_parts(word: str) -> Configuration:
    """The settings of a program with workers of its own."""
    return replace(*configured(word), own_parts=True)


def _irrelevant(configuration: Configuration) -> str | Unknown | None:
    if not configuration.has(_ACTOR) or not configuration.has(GPUS):
        return "this is not a PPO configuration"
    if not trains(configuration):
        return "the job trains nothing"
    return None if configuration.complete else Unknown(configuration.why_incomplete)


@check(
    "CFG108",
    phase="validation",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103"),
    examples=lambda: [
        Example("verl's defaults", (*configured(), _EVERY)),
        Example("this verl has no such requirement", (*configured("data.train_batch_size=100"), Demands())),
        Example("an unknown value", (*configured("data.train_batch_size=${oc.env:N}"), _EVERY)),
        Example(
            "100 prompts on 8 GPUs",
            (*configured("data.train_batch_size=100", f"{_ACTOR}.ppo_mini_batch_size=32"), _EVERY),
            "100 * 1 = 100 samples cannot be divided among 8 GPUs",
        ),
        Example(
            "a mini batch larger than the batch",
            (*configured("data.train_batch_size=128"), _EVERY),
            "data.train_batch_size (128) is less than",
        ),
        Example(
            "both kinds of micro batch",
            (*configured(f"{_ACTOR}.ppo_micro_batch_size=32"), _EVERY),
            "are both set",
        ),
        Example(
            "no micro batch", (*configured(f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu=null"), _EVERY), "neither"
        ),
        Example(
            "mini batches that are no multiple of a micro batch",
            (*configured(f"{_ACTOR}.ppo_micro_batch_size_per_gpu=5"), _EVERY),
            "32 samples of a mini batch on each GPU are not a multiple of 5",
        ),
        Example(
            "a micro batch for all GPUs together",
            (*configured(f"{_ACTOR}.ppo_micro_batch_size=16", f"{_ACTOR}.ppo_micro_batch_size_per_gpu=null"), _EVERY),
            "no longer divided among the GPUs",
        ),
        Example(
            "log probabilities with another kind of batch",
            (*configured(f"{_ACTOR}.use_dynamic_bsz=True", f"+{_LOG_PROBS}=False"), _EVERY),
            "the workers of this verl need the same",
        ),
        Example("rollout groups that do not divide the GPUs", (*configured(f"{_ROLLOUT}.tensor_model_parallel_size=3"), _EVERY), "8 GPUs"),
        Example("rollout groups of more GPUs than the job has", (*configured(f"+{_ROLLOUT}.data_parallel_size=16"), _EVERY), "rollout groups of"),
        Example("a sequence split over more GPUs than the job has", (*configured(f"{_SEQUENCE}=16"), _EVERY), "each sequence is split over 16 GPUs, and the job has 8 GPUs"),
        Example(
            "sequence parallelism with padding",
            (*configured(f"{_SEQUENCE}=2", "actor_rollout_ref.model.use_remove_padding=False"), _EVERY),
            "use_remove_padding",
        ),
        Example("a reference model that is split, with padding", (*configured(f"+{_REF}.ulysses_sequence_parallel_size=2", f"+{_REF}.strategy=fsdp", f"{_ACTOR}.use_kl_loss=True", "actor_rollout_ref.model.use_remove_padding=False"), _EVERY), "(ref.ulysses_sequence_parallel_size=2) needs"),
        Example("a reference model that the job does not have", (*configured(f"+{_REF}.ulysses_sequence_parallel_size=2", f"+{_REF}.strategy=fsdp", "actor_rollout_ref.model.use_remove_padding=False"), _EVERY)),
        Example(
            "dynamic batches of whole rows",
            (*configured(f"{_ACTOR}.use_dynamic_bsz=True", f"+{_ACTOR}.ppo_max_token_len_per_gpu=1536", "+data.max_response_length=1024"), _EVERY),
        ),
        Example(
            "dynamic batches smaller than a row",
            (*configured(f"{_ACTOR}.use_dynamic_bsz=True", f"+{_ACTOR}.ppo_max_token_len_per_gpu=1024", "+data.max_response_length=1024"), _EVERY),
            "ppo_max_token_len_per_gpu (1024) is less than the 1536 tokens of a row",
        ),
        Example(
            "validation that samples at temperature 0",
            (*configured(f"{_ROLLOUT}.val_kwargs.do_sample=True", f"{_ROLLOUT}.temperature=0"), _EVERY),
            "temperature",
        ),
        Example("no micro batch, for workers of the job's own", (_with_own_parts(f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu=null"), _EVERY), "neither"),
        Example("rows without messages", (*configured(f"+{_ROLLOUT}.mode=async", "+data.return_raw_chat=False"), _EVERY), "reads the messages of each row"),
        Example("an agent loop of the job's own", (*configured(f"+{_ROLLOUT}.mode=async", "+data.return_raw_chat=False", f"+{_ROLLOUT}.agent.agent_loop_config_path=/a.yaml"), _EVERY)),
        Example("rows of the job's own class", (*configured(f"+{_ROLLOUT}.mode=async", "+data.return_raw_chat=False", "+data.custom_cls.path=/a.py"), _EVERY)),
    ],
)  # fmt: skip
def batch_sizes_do_not_fit(
    configuration: Configuration, demands: Demands, resources: Resources | Unknown
) -> Iterator[Finding]:
    """verl refuses these batch sizes, or settings that contradict each other.

    ## Why it matters
    verl checks them when the trainer or its workers start: after Ray is up, and in part after the model is
    loaded. The job stops there. Which of these requirements apply is read from verl's sources.

    ## How to fix
    Choose sizes that divide evenly: the number of GPUs must divide `train_batch_size` times `rollout.n`, and
    the micro batch per GPU must divide `ppo_mini_batch_size` times `rollout.n` per GPU. Of
    `..._micro_batch_size` and `..._micro_batch_size_per_gpu`, set only the second. Up to verl 0.6, an
    asynchronous rollout needs `data.return_raw_chat=True`.
    """
    padded = not demands.place("row without padding")
    here = _gpus_here(configuration, resources)
    for broken in (*_broken(configuration), *_dynamic_batches(configuration, padded=padded)):
        where = demands.place(broken.demand)
        if where:
            words = [word for key in broken.keys if (word := configuration.override_of(key)) is not None]
            yield Finding(
                broken.message,
                Evidence(
                    found=", ".join(f"{key}={_shown(configuration.get(key))}" for key in broken.keys),
                    read_from=f"{where}",
                ),
                location=place(words[0]) if words else None,
                remedy=broken.remedy,
                severity=None if broken.certain and not configuration.own_parts else "warning",
                phase=_PHASES.get(broken.demand),
                subject=Subject("setting", broken.keys[0], broken.demand),
                **healed("CFG108", _correction(configuration, broken, here)),
            )


def _gpus_here(configuration: Configuration, resources: Resources | Unknown) -> int:
    """This machine's number of GPUs if that is less than the job requests on each node; 0 otherwise."""
    here = 0 if isinstance(resources, Unknown) else len(resources.gpus or ())
    return here if here < (configuration.number(GPUS) or 0) else 0


def _correction(configuration: Configuration, broken: _Broken, here: int) -> Correction | None:
    """The nearest settings that meet the demand on the existing GPUs: settings for more would fail for lack of GPUs."""
    if not here or GPUS not in broken.keys:
        first = settings(configuration, broken.values, broken.why) if broken.values else None
        others = (settings(configuration, values) for values in broken.others)
        return first and replace(first, others=tuple(filter(None, others)))
    after = copied(configuration.after)
    section, _, name = GPUS.rpartition(".")
    after[section][name] = here
    left = [other for other in _broken(replace(configuration, after=after)) if other.demand == broken.demand]
    values = {key: value for other in left for key, value in other.values.items()}
    why = "; ".join([f"this machine has {counted(here, 'GPU')}", *(other.why for other in left)])
    effects = ["the job trains on fewer GPUs than the script requests", effect_of(configuration, values)]
    return settings(configuration, {GPUS: here, **values}, why, "; ".join(filter(None, effects)))


def _broken(configuration: Configuration) -> Iterator[_Broken]:
    """Yield the demands that are not met, apart from those on dynamic batches."""
    for unmet in (
        _fixed_batches,
        _kind_of_batches,
        _rollout_groups,
        _sequence_groups,
        _padding,
        _temperature,
        _raw_chat,
    ):
        yield from unmet(configuration)


def _is_sharded(configuration: Configuration) -> bool:
    """Whether the actor trains with FSDP, of either kind."""
    return configuration.get(f"{_ACTOR}.strategy") in ("fsdp", "fsdp2")


def _fixed_batches(configuration: Configuration) -> Iterator[_Broken]:
    """Yield what is wrong with batches that are measured in samples."""
    if configuration.get(f"{_ACTOR}.use_dynamic_bsz") is False:
        yield from _whole_batch(configuration)
        yield from _micro_batches(configuration)
        if _is_sharded(configuration):
            yield from _mini_batch(configuration)


def _kind_of_batches(configuration: Configuration) -> Iterator[_Broken]:
    dynamic = configuration.get(f"{_ACTOR}.use_dynamic_bsz")
    if isinstance(dynamic, bool) and configuration.get(_LOG_PROBS) is (not dynamic):
        yield _Broken(
            "same kind of batches",
            f"{_ACTOR}.use_dynamic_bsz is {dynamic}, and {_LOG_PROBS} is {not dynamic}: the workers of this verl need the same",
            (_LOG_PROBS, f"{_ACTOR}.use_dynamic_bsz"),
            f"set {_LOG_PROBS}={dynamic}",
            values={_LOG_PROBS: dynamic},
            why="log probabilities are computed in the same kind of batches as the update",
        )


def _rollout_groups(configuration: Configuration) -> Iterator[_Broken]:
    gpus = _product(configuration, *_GPUS)
    tensor = configuration.number(_TENSOR)
    if not gpus or not tensor or configuration.get("actor_rollout_ref.hybrid_engine") is False:
        return
    if gpus % tensor == 0:
        yield from _wide_groups(configuration, gpus, tensor)
        return
    groups = _nearest_divisor(int(gpus), int(tensor))
    yield _Broken(
        _GROUPS,
        f"{counted(int(gpus), 'GPU')} cannot be divided into rollout groups of {tensor:g}",
        (*_GPUS, _TENSOR),
        "choose a tensor_model_parallel_size that divides the number of GPUs",
        values={_TENSOR: groups},
        why=f"{counted(int(gpus), 'GPU')} = {counted(int(gpus / groups), 'group')} of {groups}",
        others=tuple({_TENSOR: size} for size in _divisors_by_distance(int(gpus), int(tensor))[1:4]),
    )


def _sequence_groups(configuration: Configuration) -> Iterator[_Broken]:
    gpus, sequence = _product(configuration, *_GPUS), configuration.number(_SEQUENCE)
    if gpus and sequence and sequence > gpus and _is_sharded(configuration):
        yield _Broken(
            _SEQUENCES,
            f"each sequence is split over {sequence:g} GPUs, and the job has {counted(int(gpus), 'GPU')}",
            (_SEQUENCE, *_GPUS),
            f"set {_SEQUENCE} to at most {gpus:g}",
            values={_SEQUENCE: int(gpus)},
            why=f"one group of {counted(int(gpus), 'GPU')}" if gpus > 1 else "no sequence is split",
        )


def _padding(configuration: Configuration) -> Iterator[_Broken]:
    """Yield what the actor's configuration demands, and what the engine of each model demands by itself."""
    padding = "actor_rollout_ref.model.use_remove_padding"
    demands = [("remove padding", _ACTOR, {"fsdp"}), (_IN_ENGINE, _ACTOR, {"fsdp2"})]
    if has_reference(configuration):
        demands.append((_IN_ENGINE, _REF, {"fsdp", "fsdp2"}))
    for demand, role, strategies in demands if configuration.get(padding) is False else ():
        key = f"{role}.ulysses_sequence_parallel_size"
        sequence = configuration.number(key)
        if sequence and sequence > 1 and configuration.get(f"{role}.strategy") in strategies:
            shown = f"ref.ulysses_sequence_parallel_size={sequence:g}" if role == _REF else f"{sequence:g}"
            yield _Broken(
                demand,
                f"sequence parallelism ({shown}) needs {padding}=True",
                (key, padding),
                f"set {padding}=True",
                values={padding: True},
                why="sequences are split only where rows have no padding",
            )


def _temperature(configuration: Configuration) -> Iterator[_Broken]:
    samples = f"{_ROLLOUT}.val_kwargs.do_sample"
    if configuration.get(samples) is True and configuration.number(f"{_ROLLOUT}.temperature") == 0:
        yield _Broken(
            "temperature",
            f"validation samples, but {_ROLLOUT}.temperature is 0",
            (samples, f"{_ROLLOUT}.temperature"),
            f"set {samples}=False, or a temperature above 0",
            values={samples: False},
            why="at temperature 0 nothing is sampled",
        )


def _raw_chat(configuration: Configuration) -> Iterator[_Broken]:
    if (
        configuration.get(f"{_ROLLOUT}.mode") == "async"
        and configuration.get("data.return_raw_chat") is False
        and not own_prompts(configuration)
        and configuration.program.endswith(_PROGRAM)
    ):
        yield _Broken(
            "raw chat",
            "an asynchronous rollout reads the messages of each row, and data.return_raw_chat=False leaves them out",
            (f"{_ROLLOUT}.mode", "data.return_raw_chat"),
            "set data.return_raw_chat=True",
            values={"data.return_raw_chat": True},
            why="the rollout applies the chat template to the messages itself",
        )


def _dynamic_batches(configuration: Configuration, *, padded: bool) -> Iterator[_Broken]:
    """Yield batches, measured in tokens, without room for the longest row. Without padding, no row may actually be that long."""
    prompt, response = (
        configuration.number("data.max_prompt_length"),
        configuration.number("data.max_response_length"),
    )
    sequence = configuration.number(_SEQUENCE) or 1
    if not prompt or not response or not _is_sharded(configuration):
        return
    row = prompt + response
    for switch, key in (
        (f"{_ACTOR}.use_dynamic_bsz", f"{_ACTOR}.ppo_max_token_len_per_gpu"),
        (f"{_ROLLOUT}.log_prob_use_dynamic_bsz", f"{_ROLLOUT}.log_prob_max_token_len_per_gpu"),
    ):
        most = configuration.number(key)
        own = key.startswith(_ACTOR) or configuration.override_of(key) is not None
        if configuration.get(switch) is True and own and most and most * sequence < row:
            tokens = f"the {row:g} tokens of a row" if padded else f"the {row:g} tokens that a row may have"
            yield _Broken(
                "row in a batch",
                f"{key.rpartition('.')[2]} ({most:g}) is less than {tokens}",
                (key, "data.max_prompt_length", "data.max_response_length"),
                f"set {key} to {-(-row // sequence):g} or more",
                certain=padded,
                values={key: -(-int(row) // int(sequence))},
                why=f"a row has {prompt:g} + {response:g} = {row:g} tokens, on {sequence:g} GPUs",
            )


def _wide_groups(configuration: Configuration, gpus: float, tensor: float) -> Iterator[_Broken]:
    """A rollout group holds each of its data-parallel and pipeline-parallel parts."""
    more = [f"{_ROLLOUT}.{name}" for name in ("data_parallel_size", "pipeline_model_parallel_size")]
    wide = [key for key in more if (configuration.number(key) or 0) > 1]
    size = tensor * math.prod(configuration.number(key) or 1 for key in more)
    if wide and gpus % size:
        yield _Broken(
            _GROUPS,
            f"{counted(int(gpus), 'GPU')} cannot be divided into rollout groups of {size:g}",
            (*wide, _TENSOR, *_GPUS),
            f"set {wide[0]}=1, or choose sizes whose product divides the number of GPUs",
            values=dict.fromkeys(wide, 1),
            why="each group is one engine on as many GPUs as it has parts",
        )


def _whole_batch(configuration: Configuration) -> Iterator[_Broken]:
    gpus = _product(configuration, *_GPUS)
    batch, samples = configuration.number("data.train_batch_size"), configuration.number(f"{_ROLLOUT}.n")
    mini = configuration.number(f"{_ACTOR}.ppo_mini_batch_size")
    if (
        batch
        and samples
        and gpus
        and configuration.get(f"{_ACTOR}.strategy") != "megatron"
        and batch * samples % gpus
    ):
        yield _Broken(
            "divisible by the GPUs",
            f"{batch:g} * {samples:g} = {batch * samples:g} samples cannot be divided among {counted(int(gpus), 'GPU')}",
            ("data.train_batch_size", f"{_ROLLOUT}.n", *_GPUS),
            "choose a data.train_batch_size so that its product with rollout.n is a multiple of the number of GPUs",
            values={
                "data.train_batch_size": (
                    prompts := _nearest_batch(int(batch), int(samples), int(gpus), int(mini or 1))
                )
            },
            why=f"{prompts} * {samples:g} = {prompts * samples:g} samples are {prompts * samples / gpus:g} for each of {gpus:g} GPUs",
        )
    if batch and mini and batch < mini:
        yield _Broken(
            "at least a mini batch",
            f"data.train_batch_size ({batch:g}) is less than {_ACTOR}.ppo_mini_batch_size ({mini:g})",
            ("data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size"),
            f"set {_ACTOR}.ppo_mini_batch_size to {batch:g} or less",
            values={f"{_ACTOR}.ppo_mini_batch_size": int(batch)},
            why=f"a batch of {batch:g} prompts is one mini batch of {batch:g}",
            others=({"data.train_batch_size": int(mini)},),
        )


def _micro_batches(configuration: Configuration) -> Iterator[_Broken]:
    wanted = [(_ACTOR, "ppo_micro_batch_size"), (_ROLLOUT, "log_prob_micro_batch_size")]
    if has_reference(configuration):
        wanted.append((_REF, "log_prob_micro_batch_size"))
    for section, name in wanted:
        old, new = f"{section}.{name}", f"{section}.{name}_per_gpu"
        if not (configuration.has(old) and configuration.has(new)):
            continue
        values = (configuration.get(old), configuration.get(new))
        if values == (None, None):
            micro = _micro_batch_of_actor(configuration)
            yield _Broken(
                "one of two",
                f"neither {new} nor {old} is set",
                (new, old),
                f"set {new}",
                values={new: micro},
                why=f"{micro} at a time, as for the actor"
                if micro > 1
                else "1 at a time takes the least memory",
            )
        elif values[1] is None and section != _REF and type(total := values[0]) is int and total > 0:
            each = _micro_batch_on_each(configuration, total)
            yield _Broken(
                "micro batch per GPU",
                f"the workers of this verl need {new}: {old} is no longer divided among the GPUs",
                (old, new),
                f"set {new} instead of {old}",
                values={old: LEAVE_OUT if configuration.override_of(old) else None, new: each},
                why=f"{each} at a time on each GPU",
            )
        elif all(isinstance(value, int) for value in values):
            yield _Broken(
                "not both",
                f"{old} and {new} are both set",
                (old, new),
                f"remove {old}, which is deprecated",
                values={old: LEAVE_OUT if configuration.override_of(old) else None},
                why=f"{new}={configuration.get(new)} stays",
            )


def _mini_batch(configuration: Configuration) -> Iterator[_Broken]:
    """Yield what is wrong with the part of a mini batch on one GPU, as FSDP workers compute it."""
    gpus = _product(configuration, *_GPUS)
    mini, samples = (
        configuration.number(f"{_ACTOR}.ppo_mini_batch_size"),
        configuration.number(f"{_ROLLOUT}.n"),
    )
    sequence = configuration.number(_SEQUENCE) or 1
    micro = configuration.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    if not mini or not samples or not gpus or gpus < sequence:
        return
    each = mini * samples // (gpus // sequence)
    keys = (f"{_ACTOR}.ppo_mini_batch_size", f"{_ROLLOUT}.n", *_GPUS)
    if each == 0:
        yield _Broken(
            "mini batch per GPU",
            f"a mini batch of {mini:g} * {samples:g} samples is smaller than the number of GPUs ({gpus:g})",
            keys,
            "choose a larger ppo_mini_batch_size",
            values={f"{_ACTOR}.ppo_mini_batch_size": (least := -(-int(gpus // sequence) // int(samples)))},
            why=f"{least} * {samples:g} = {least * samples:g} samples are {least * samples // (gpus // sequence):g} for each of {gpus / sequence:g}",
        )
    elif micro and each % micro:
        yield _Broken(
            "mini batch of micro batches",
            f"the {each:g} samples of a mini batch on each GPU are not a multiple of {micro:g}",
            (f"{_ACTOR}.ppo_micro_batch_size_per_gpu", *keys),
            f"choose a ppo_micro_batch_size_per_gpu that divides {each:g}",
            values={
                f"{_ACTOR}.ppo_micro_batch_size_per_gpu": (smaller := _divisor_up_to(int(each), int(micro)))
            },
            why=f"{each:g} = {each / smaller:g} * {smaller}",
        )


def _divisor_up_to(number: int, most: int) -> int:
    """The largest divisor of a number that is no larger than `most`."""
    return next(size for size in range(max(1, min(number, most)), 0, -1) if number % size == 0)


def _nearest_divisor(number: int, wanted: int) -> int:
    return _divisors_by_distance(number, wanted)[0]


def _divisors_by_distance(number: int, wanted: int) -> list[int]:
    """The divisors, the nearest to the expected number first; of two the larger, which spreads memory wider."""
    divisors = (size for size in range(1, number + 1) if number % size == 0)
    return sorted(divisors, key=lambda size: (abs(size - wanted), -size))


def _nearest_batch(batch: int, samples: int, gpus: int, mini: int) -> int:
    """The number of prompts nearest to `batch` that holds a mini batch and whose samples divide among the GPUs; of two the smaller."""
    step = gpus // math.gcd(gpus, samples)
    below = batch // step * step
    return below if below >= max(mini, 1) and batch - below <= step // 2 else below + step


def _micro_batch_of_actor(configuration: Configuration) -> int:
    return int(configuration.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu") or 1)


def _micro_batch_on_each(configuration: Configuration, total: int) -> int:
    """The part of a micro batch of all GPUs on each of them, if necessary less, so that the samples of a mini batch are a multiple of it."""
    ranks = (_product(configuration, *_GPUS) or 1) // (configuration.number(_SEQUENCE) or 1)
    ranks = max(1, int(ranks))
    mini = _product(configuration, f"{_ACTOR}.ppo_mini_batch_size", f"{_ROLLOUT}.n") or 0
    return _divisor_up_to(int(mini) // ranks or 1, max(1, total // ranks))


def _product(configuration: Configuration, *keys: str) -> float | None:
    product = 1.0
    for key in keys:
        value = configuration.number(key)
        if not value:
            return None
        product *= value
    return product


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
