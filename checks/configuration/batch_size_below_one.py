"""CFG134: a batch of no rows, or of fewer than none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from verl_doctor.checks.shared.configuration import WORKERS, configured, place
from verl_doctor.checks.shared.corrections import healed, without_value
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.roles import is_read, no_update, validates
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Phase, Subject, check

_ACTOR, _ROLLOUT, _REFERENCE = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
_MICRO = "ppo_micro_batch_size_per_gpu"
_LOG_PROB = "log_prob_micro_batch_size_per_gpu"
_PREPARED = ("sync", MISSING)  # the other trainers fetch one prompt at a time


@dataclass(frozen=True)
class _Size:
    """A size that must be `least` or more, 0 where that stands for another size.

    `unless` is the switch of batches measured in tokens.
    """

    key: str
    phase: Phase
    least: int = 1
    unless: str = ""


_SIZES = (
    _Size("data.gen_batch_size", "workers", 0),
    _Size("data.val_batch_size", "workers", 0),
    _Size(f"{_ACTOR}.ppo_mini_batch_size", "first update"),
    _Size(f"{_ACTOR}.{_MICRO}", "first update", unless=f"{_ACTOR}.use_dynamic_bsz"),
    _Size(f"{_REFERENCE}.{_LOG_PROB}", "first batch", unless=f"{_REFERENCE}.log_prob_use_dynamic_bsz"),
    _Size("critic.ppo_mini_batch_size", "first update"),
    _Size("reward.num_workers", "first batch"),
    _Size(f"critic.{_MICRO}", "first update", unless="critic.use_dynamic_bsz"),
)
_IN_AGENT_LOOPS = (_Size(WORKERS, "first batch"),)
_VALIDATED = (_Size(f"{_ROLLOUT}.val_kwargs.n", "first validation"),)
_TUNED = (
    _Size("data.train_batch_size", "workers"),
    _Size("data.micro_batch_size_per_gpu", "first update", unless="data.use_dynamic_bsz"),
)


_TUNING = {"data": {"train_batch_size": 256, "micro_batch_size_per_gpu": 4, "use_dynamic_bsz": True}}


def _tuning(*words: str) -> tuple[Configuration]:
    (found,) = configured(*words, tree=_TUNING)
    return (replace(found, program="/env/verl/trainer/sft_trainer.py"),)


def _irrelevant(configuration: Configuration) -> str | None:
    if not configuration.program.endswith(("/trainer/main_ppo.py", "/trainer/sft_trainer.py")):
        return "the job starts neither verl's main_ppo nor its SFT trainer"
    return no_update(configuration)


def _examples() -> list[Example]:
    return [
        Example("sizes of one", configured(f"{_ACTOR}.{_MICRO}=1", "+data.gen_batch_size=1")),
        Example(
            "no size of its own for generation, none for validation",
            configured("+data.gen_batch_size=0", "+data.val_batch_size=0"),
        ),
        Example("an unknown size", configured(f"{_ACTOR}.{_MICRO}=${{oc.env:N}}")),
        Example(
            "micro batches are measured in tokens",
            configured(f"{_ACTOR}.use_dynamic_bsz=True", f"{_ACTOR}.{_MICRO}=0"),
        ),
        Example("the job only validates", configured("+trainer.val_only=True", f"{_ACTOR}.{_MICRO}=0")),
        Example("no critic", configured("algorithm.adv_estimator=grpo", f"+critic.{_MICRO}=-1")),
        Example(
            "another trainer fetches prompts one by one",
            configured("+trainer.v1.trainer_mode=separate_async", "+data.gen_batch_size=-1"),
        ),
        Example(
            "a micro batch of nothing",
            configured(f"{_ACTOR}.{_MICRO}=0"),
            f"{_ACTOR}.{_MICRO} is 0, but must be 1 or more",
        ),
        Example(
            "a batch below zero to generate",
            configured("+data.gen_batch_size=-1"),
            "data.gen_batch_size is -1, but must be 1 or more, or null",
        ),
        Example(
            "a batch below zero to validate",
            configured("+data.val_batch_size=-1"),
            "data.val_batch_size is -1",
        ),
        Example(
            "no answers to validate",
            configured(f"+{_ROLLOUT}.val_kwargs.n=0", "+trainer.test_freq=1"),
            "val_kwargs.n is 0, but must be 1 or more",
        ),
        Example(
            "no answers to validate, and no validation",
            configured(
                f"+{_ROLLOUT}.val_kwargs.n=0", "+trainer.test_freq=-1", "+trainer.val_before_train=False"
            ),
        ),
        Example(
            "no worker for agent loops",
            configured(f"{WORKERS}=0"),
            f"{WORKERS} is 0, but must be 1 or more",
        ),
        Example(
            "no worker for agent loops, and the engine generates by itself",
            configured(f"{WORKERS}=0", f"+{_ROLLOUT}.mode=sync"),
        ),
        Example(
            "no worker for rewards",
            configured("+reward.num_workers=0"),
            "reward.num_workers is 0, but must be 1 or more",
        ),
        Example(
            "fine-tuning without a batch size",
            _tuning("data.train_batch_size=null"),
            "data.train_batch_size is null, but must be 1 or more",
        ),
        Example(
            "fine-tuning without micro batches",
            _tuning("data.micro_batch_size_per_gpu=null", "data.use_dynamic_bsz=False"),
            "data.micro_batch_size_per_gpu is null",
        ),
        Example(
            "fine-tuning with micro batches measured in tokens", _tuning("data.micro_batch_size_per_gpu=null")
        ),
        Example(
            "a mini batch below zero",
            configured(f"{_ACTOR}.ppo_mini_batch_size=-8"),
            "ppo_mini_batch_size is -8",
        ),
    ]


@check(
    "CFG134",
    phase="first update",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103"),
    examples=_examples,
    since="0.2",
)
def batch_size_below_one(configuration: Configuration) -> Iterator[Finding]:
    """A batch of no rows, or of fewer than none.

    ## Why it matters

    -1 stands for "all" or "no limit" in other settings, not here. Hydra and verl's validation accept it; a
    data loader then refuses it (`batch_size should be a positive integer value`), or the first batch cannot
    be split (`chunks must be a strictly positive integer`, `integer modulo by zero`). Rewards and agent
    loops need a worker: 0 does not leave them to the trainer, as it does for data loaders. The SFT trainer
    calculates with its sizes, and has no other one in place of null.

    ## How to fix

    Set a size of 1 or more. `data.gen_batch_size` and `data.val_batch_size` may be null: verl then takes
    `data.train_batch_size`, and all rows.
    """
    tunes = configuration.program.endswith("/sft_trainer.py")
    sizes = (
        *_SIZES,
        *(_VALIDATED if validates(configuration) else ()),
        *(_IN_AGENT_LOOPS if configuration.get(f"{_ROLLOUT}.mode") != "sync" else ()),
    )
    for size in _TUNED if tunes else sizes:
        value = configuration.number(size.key)
        is_null = tunes and configuration.get(size.key) is None
        if (value is None and not is_null) or (value is not None and value >= size.least):
            continue
        if size.unless and configuration.get(size.unless) is not False:
            continue
        if not is_read(configuration, size.key) or (
            size.key == "data.gen_batch_size" and _one_by_one(configuration)
        ):
            continue
        word, own = configuration.override_of(size.key), configuration.own_line(size.key)
        if word is None and own is None:
            continue
        shown = "null" if value is None else f"{value:g}"
        yield Finding(
            f"{size.key} is {shown}, but must be 1 or more" + ("" if size.least else ", or null"),
            Evidence(found=word.text if word else f"{size.key}: {shown}", wanted="1 or more"),
            location=place(word) if word else own and Location(*own),
            remedy=f"set {size.key} to 1 or more"
            if size.least
            else f"remove {size.key}, or set it to 1 or more",
            subject=Subject("setting", size.key),
            stops=(EVERY_JOB,),
            phase=size.phase,
            **healed("CFG134", without_value(configuration, size.key)),
        )


def _one_by_one(configuration: Configuration) -> bool:
    """Return whether the trainer may replace the size by one prompt at a time."""
    mode = configuration.get("trainer.v1.trainer_mode")
    switches = ("algorithm.filter_groups.enable", "trainer.v1.sampler.sync_refill_failed_groups")
    return mode not in _PREPARED or any(
        configuration.get(key) not in (False, None, MISSING) for key in switches
    )
