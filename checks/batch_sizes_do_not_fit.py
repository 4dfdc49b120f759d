"""CFG108: batch sizes that verl refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from verl_doctor.checks._configuration import GPUS, NODES, asked, place
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_demands import Demands
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_REF = "actor_rollout_ref.ref"
_GPUS = (GPUS, NODES)
_EVERY = Demands(
    dict.fromkeys(
        (
            "divisible by the GPUs", "divisible by model parallelism", "at least a mini batch", "one of two", "not both",
            "mini batch per GPU", "mini batch of micro batches", "rollout groups", "remove padding", "temperature",
        ),
        "/env/verl/utils/config.py:111",
    )
)  # fmt: skip


class _Broken(NamedTuple):
    """A demand that is not met: what is wrong, the keys that decide it, and what would do."""

    demand: str
    message: str
    keys: tuple[str, ...]
    remedy: str


def _irrelevant(configuration: Configuration) -> str | None:
    if not configuration.has(_ACTOR) or not configuration.has(GPUS):
        return "this is no configuration of PPO"
    return (
        None if configuration.complete else "a part of the command is not known, so other values may be set"
    )


@check(
    "CFG108",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103"),
    examples=[
        Example("verl's defaults", (*asked(), _EVERY)),
        Example("this verl does not demand it", (*asked("data.train_batch_size=100"), Demands())),
        Example("a value that is not known", (*asked("data.train_batch_size=${oc.env:N}"), _EVERY)),
        Example(
            "100 prompts on 8 GPUs",
            (*asked("data.train_batch_size=100", f"{_ACTOR}.ppo_mini_batch_size=32"), _EVERY),
            "100 * 1 = 100 samples do not divide among 8 GPUs",
        ),
        Example(
            "a mini batch larger than the batch",
            (*asked("data.train_batch_size=128"), _EVERY),
            "data.train_batch_size (128) is less than",
        ),
        Example(
            "both kinds of micro batch",
            (*asked(f"{_ACTOR}.ppo_micro_batch_size=32"), _EVERY),
            "are both set",
        ),
        Example(
            "no micro batch", (*asked(f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu=null"), _EVERY), "neither"
        ),
        Example(
            "mini batches that micro batches do not fill",
            (*asked(f"{_ACTOR}.ppo_micro_batch_size_per_gpu=5"), _EVERY),
            "32 samples of a mini batch on each GPU are no multiple of 5",
        ),
        Example("groups that GPUs do not fill", (*asked(f"{_ROLLOUT}.tensor_model_parallel_size=3"), _EVERY), "8 GPUs"),
        Example(
            "sequence parallelism with padding",
            (*asked(f"{_ACTOR}.ulysses_sequence_parallel_size=2", "actor_rollout_ref.model.use_remove_padding=False"), _EVERY),
            "use_remove_padding",
        ),
        Example(
            "validation that samples at temperature 0",
            (*asked(f"{_ROLLOUT}.val_kwargs.do_sample=True", f"{_ROLLOUT}.temperature=0"), _EVERY),
            "temperature",
        ),
    ],
)  # fmt: skip
def batch_sizes_do_not_fit(configuration: Configuration, demands: Demands) -> Iterator[Finding]:
    """Batch sizes that verl refuses.

    ## Why it matters
    verl checks them when the trainer or its workers start, after Ray is up, and some of them after the model is loaded; the
    job stops there. Which of these demands a verl makes is read from its sources.

    ## How to fix
    Choose sizes that divide: `train_batch_size` times `rollout.n` by the number of GPUs, `ppo_mini_batch_size` times
    `rollout.n` per GPU by the micro batch per GPU. Of `..._micro_batch_size` and `..._micro_batch_size_per_gpu` set the
    second alone.
    """
    for broken in _broken(configuration):
        where = demands.place(broken.demand)
        if where:
            words = [word for key in broken.keys if (word := configuration.asked_for(key)) is not None]
            yield Finding(
                broken.message,
                Evidence(
                    found=", ".join(f"{key}={_shown(configuration.get(key))}" for key in broken.keys),
                    read_from=f"verl demands it in {where}",
                ),
                location=place(words[0]) if words else None,
                remedy=broken.remedy,
            )


def _broken(there: Configuration) -> Iterator[_Broken]:
    dynamic = there.get(f"{_ACTOR}.use_dynamic_bsz")
    gpus = _product(there, *_GPUS)
    if dynamic is False:
        yield from _whole_batch(there, gpus)
        yield from _micro_batches(there)
        if there.get(f"{_ACTOR}.strategy") in ("fsdp", "fsdp2"):
            yield from _mini_batch(there, gpus)
    tensor = there.number(f"{_ROLLOUT}.tensor_model_parallel_size")
    if gpus and tensor and gpus % tensor and there.get("actor_rollout_ref.hybrid_engine") is not False:
        yield _Broken(
            "rollout groups",
            f"{gpus:g} GPUs do not divide into rollout groups of {tensor:g}",
            (*_GPUS, f"{_ROLLOUT}.tensor_model_parallel_size"),
            "Choose a tensor_model_parallel_size that divides the number of GPUs",
        )
    sequence = there.number(f"{_ACTOR}.ulysses_sequence_parallel_size")
    padding = "actor_rollout_ref.model.use_remove_padding"
    if (
        sequence
        and sequence > 1
        and there.get(padding) is False
        and there.get(f"{_ACTOR}.strategy") == "fsdp"
    ):
        yield _Broken(
            "remove padding",
            f"sequence parallelism ({sequence:g}) needs {padding}=True",
            (f"{_ACTOR}.ulysses_sequence_parallel_size", padding),
            f"Set {padding}=True",
        )
    if there.get(f"{_ROLLOUT}.val_kwargs.do_sample") is True and there.number(f"{_ROLLOUT}.temperature") == 0:
        yield _Broken(
            "temperature",
            f"validation is to sample, and {_ROLLOUT}.temperature is 0",
            (f"{_ROLLOUT}.val_kwargs.do_sample", f"{_ROLLOUT}.temperature"),
            f"Set {_ROLLOUT}.val_kwargs.do_sample=False, or a temperature above 0",
        )


def _whole_batch(there: Configuration, gpus: float | None) -> Iterator[_Broken]:
    batch, samples = there.number("data.train_batch_size"), there.number(f"{_ROLLOUT}.n")
    mini = there.number(f"{_ACTOR}.ppo_mini_batch_size")
    if (
        batch
        and samples
        and gpus
        and there.get(f"{_ACTOR}.strategy") != "megatron"
        and batch * samples % gpus
    ):
        yield _Broken(
            "divisible by the GPUs",
            f"{batch:g} * {samples:g} = {batch * samples:g} samples do not divide among {gpus:g} GPUs",
            ("data.train_batch_size", f"{_ROLLOUT}.n", *_GPUS),
            "Choose a data.train_batch_size so that its product with rollout.n is a multiple of the number of GPUs",
        )
    if batch and mini and batch < mini:
        yield _Broken(
            "at least a mini batch",
            f"data.train_batch_size ({batch:g}) is less than {_ACTOR}.ppo_mini_batch_size ({mini:g})",
            ("data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size"),
            f"Set {_ACTOR}.ppo_mini_batch_size to {batch:g} or less",
        )


def _micro_batches(there: Configuration) -> Iterator[_Broken]:
    wanted = [(_ACTOR, "ppo_micro_batch_size"), (_ROLLOUT, "log_prob_micro_batch_size")]
    if True in (there.get(f"{_ACTOR}.use_kl_loss"), there.get("algorithm.use_kl_in_reward")):
        wanted.append((_REF, "log_prob_micro_batch_size"))
    for section, name in wanted:
        old, new = f"{section}.{name}", f"{section}.{name}_per_gpu"
        if not (there.has(old) and there.has(new)):
            continue
        values = (there.get(old), there.get(new))
        if values == (None, None):
            yield _Broken("one of two", f"neither {new} nor {old} is set", (new, old), f"Set {new}")
        elif all(isinstance(value, int) for value in values):
            yield _Broken(
                "not both", f"{old} and {new} are both set", (old, new), f"Remove {old}, which is deprecated"
            )


def _mini_batch(there: Configuration, gpus: float | None) -> Iterator[_Broken]:
    """What is left of a mini batch on one GPU, as FSDP workers compute it."""
    mini, samples = there.number(f"{_ACTOR}.ppo_mini_batch_size"), there.number(f"{_ROLLOUT}.n")
    sequence = there.number(f"{_ACTOR}.ulysses_sequence_parallel_size") or 1
    micro = there.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    if not mini or not samples or not gpus or gpus < sequence:
        return
    each = mini * samples // (gpus // sequence)
    keys = (f"{_ACTOR}.ppo_mini_batch_size", f"{_ROLLOUT}.n", *_GPUS)
    if each == 0:
        yield _Broken(
            "mini batch per GPU",
            f"a mini batch of {mini:g} * {samples:g} samples leaves none for each of {gpus:g} GPUs",
            keys,
            "Choose a larger ppo_mini_batch_size",
        )
    elif micro and each % micro:
        yield _Broken(
            "mini batch of micro batches",
            f"the {each:g} samples of a mini batch on each GPU are no multiple of {micro:g}",
            (f"{_ACTOR}.ppo_micro_batch_size_per_gpu", *keys),
            f"Choose a ppo_micro_batch_size_per_gpu that divides {each:g}",
        )


def _product(there: Configuration, *keys: str) -> float | None:
    product = 1.0
    for key in keys:
        value = there.number(key)
        if not value:
            return None
        product *= value
    return product


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
