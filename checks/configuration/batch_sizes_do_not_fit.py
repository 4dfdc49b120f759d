"""CFG108: batch sizes that verl refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.configuration._batch_demands import (
    ACTOR,
    IN_ENGINE,
    LOG_PROBS,
    REF,
    ROLLOUT,
    SEQUENCE,
    Broken,
    broken_demands,
    dynamic_batches,
)
from verl_doctor.checks.configuration._micro_batches import WHOLE_MICRO_BATCHES, micro_batches
from verl_doctor.checks.shared.configuration import GPUS, configured, place
from verl_doctor.checks.shared.corrections import effect_of, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, copied
from verl_doctor.toolkit.collectors.configuration.demands import Demands
from verl_doctor.toolkit.collectors.configuration.roles import trains
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted

_EVERY = Demands(
    dict.fromkeys(
        (
            "divisible by the GPUs",
            "divisible by model parallelism",
            "at least a mini batch",
            "one of two",
            "not both",
            "mini batch per GPU",
            "micro batch per GPU",
            "same kind of batches",
            "mini batch of micro batches",
            "rollout groups",
            "sequence groups",
            "remove padding",
            IN_ENGINE,
            "temperature",
            "row in a batch",
            "raw chat",
            "answers of a group",
        ),
        "/env/verl/utils/config.py:111",
    )
)

_IN_ENGINE = Demands({WHOLE_MICRO_BATCHES: "/env/verl/workers/engine/utils.py:125"})
_REFERENCE_CUT = (
    f"{ACTOR}.use_kl_loss=True",
    f"+{REF}.strategy=fsdp",
    f"+{REF}.log_prob_use_dynamic_bsz=False",
    f"{REF}.log_prob_micro_batch_size_per_gpu=24",
)


def _with_own_parts(word: str) -> Configuration:
    """The settings of a program with workers of its own."""
    return replace(*configured(word), own_parts=True)


def _irrelevant(configuration: Configuration) -> str | Unknown | None:
    if not configuration.has(ACTOR) or not configuration.has(GPUS):
        return "this is not a PPO configuration"
    if not trains(configuration):
        return "the job trains nothing"
    return None if configuration.complete else Unknown(configuration.why_incomplete)


def _examples() -> list[Example]:
    return [
        Example("verl's defaults", (*configured(), _EVERY)),
        Example("this verl has no such requirement", (*configured("data.train_batch_size=100"), Demands())),
        Example("an unknown value", (*configured("data.train_batch_size=${oc.env:N}"), _EVERY)),
        Example(
            "100 prompts on 8 GPUs",
            (*configured("data.train_batch_size=100", f"{ACTOR}.ppo_mini_batch_size=32"), _EVERY),
            "100 * 1 = 100 samples cannot be divided among 8 GPUs",
        ),
        Example(
            "a mini batch larger than the batch",
            (*configured("data.train_batch_size=128"), _EVERY),
            "data.train_batch_size (128) is less than",
        ),
        Example(
            "both kinds of micro batch",
            (*configured(f"{ACTOR}.ppo_micro_batch_size=32"), _EVERY),
            "are both set",
        ),
        Example(
            "no micro batch",
            (*configured(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=null"), _EVERY),
            "neither",
        ),
        Example(
            "mini batches that are no multiple of a micro batch",
            (*configured(f"{ACTOR}.ppo_micro_batch_size_per_gpu=5"), _EVERY),
            "32 samples of a mini batch on each GPU are not a multiple of 5",
        ),
        Example(
            "a micro batch for all GPUs together",
            (
                *configured(f"{ACTOR}.ppo_micro_batch_size=16", f"{ACTOR}.ppo_micro_batch_size_per_gpu=null"),
                _EVERY,
            ),
            "no longer divided among the GPUs",
        ),
        Example(
            "log probabilities with another kind of batch",
            (*configured(f"{ACTOR}.use_dynamic_bsz=True", f"+{LOG_PROBS}=False"), _EVERY),
            "the workers of this verl need the same",
        ),
        Example(
            "rollout groups that do not divide the GPUs",
            (*configured(f"{ROLLOUT}.tensor_model_parallel_size=3"), _EVERY),
            "8 GPUs",
        ),
        Example(
            "rollout groups of more GPUs than the job has",
            (*configured(f"+{ROLLOUT}.data_parallel_size=16"), _EVERY),
            "rollout groups of",
        ),
        Example(
            "a sequence split over more GPUs than the job has",
            (*configured(f"{SEQUENCE}=16"), _EVERY),
            "each sequence is split over 16 GPUs, and the job has 8 GPUs",
        ),
        Example(
            "sequence parallelism with padding",
            (*configured(f"{SEQUENCE}=2", "actor_rollout_ref.model.use_remove_padding=False"), _EVERY),
            "use_remove_padding",
        ),
        Example(
            "a reference model that is split, with padding",
            (
                *configured(
                    f"+{REF}.ulysses_sequence_parallel_size=2",
                    f"+{REF}.strategy=fsdp",
                    f"{ACTOR}.use_kl_loss=True",
                    "actor_rollout_ref.model.use_remove_padding=False",
                ),
                _EVERY,
            ),
            "(ref.ulysses_sequence_parallel_size=2) needs",
        ),
        Example(
            "a reference model that the job does not have",
            (
                *configured(
                    f"+{REF}.ulysses_sequence_parallel_size=2",
                    f"+{REF}.strategy=fsdp",
                    "actor_rollout_ref.model.use_remove_padding=False",
                ),
                _EVERY,
            ),
        ),
        Example(
            "dynamic batches of whole rows",
            (
                *configured(
                    f"{ACTOR}.use_dynamic_bsz=True",
                    f"+{ACTOR}.ppo_max_token_len_per_gpu=1536",
                    "+data.max_response_length=1024",
                ),
                _EVERY,
            ),
        ),
        Example(
            "dynamic batches smaller than a row",
            (
                *configured(
                    f"{ACTOR}.use_dynamic_bsz=True",
                    f"+{ACTOR}.ppo_max_token_len_per_gpu=1024",
                    "+data.max_response_length=1024",
                ),
                _EVERY,
            ),
            "ppo_max_token_len_per_gpu (1024) is less than the 1536 tokens of a row",
        ),
        Example(
            "validation that samples at temperature 0",
            (*configured(f"{ROLLOUT}.val_kwargs.do_sample=True", f"{ROLLOUT}.temperature=0"), _EVERY),
            "temperature",
        ),
        Example(
            "pass@k of two answers",
            (*configured("algorithm.adv_estimator=grpo_passk", f"{ROLLOUT}.n=2"), _EVERY),
        ),
        Example(
            "pass@k of one answer",
            (*configured("algorithm.adv_estimator=grpo_passk", f"{ROLLOUT}.n=1"), _EVERY),
            "actor_rollout_ref.rollout.n is 1",
        ),
        Example(
            "no micro batch, for workers of the job's own",
            (_with_own_parts(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=null"), _EVERY),
            "neither",
        ),
        Example(
            "rows without messages",
            (*configured(f"+{ROLLOUT}.mode=async", "+data.return_raw_chat=False"), _EVERY),
            "reads the messages of each row",
        ),
        Example(
            "an agent loop of the job's own",
            (
                *configured(
                    f"+{ROLLOUT}.mode=async",
                    "+data.return_raw_chat=False",
                    f"+{ROLLOUT}.agent.agent_loop_config_path=/a.yaml",
                ),
                _EVERY,
            ),
        ),
        Example(
            "a micro batch that divides what each GPU gets",
            (*configured(f"{ACTOR}.ppo_micro_batch_size_per_gpu=8"), _IN_ENGINE),
        ),
        Example(
            "a mini batch that the engine cannot cut",
            (*configured(f"{ACTOR}.ppo_micro_batch_size_per_gpu=3"), _IN_ENGINE),
            "the 32 samples of a mini batch on each GPU are not a multiple of 3",
        ),
        Example(
            "a critic's mini batch, which verl's engine always cuts by tokens",
            (
                *configured(
                    "algorithm.adv_estimator=gae",
                    "+critic.strategy=fsdp2",
                    "+critic.use_dynamic_bsz=False",
                    "+critic.ppo_mini_batch_size=64",
                    "+critic.ppo_micro_batch_size_per_gpu=16",
                ),
                _IN_ENGINE,
            ),
        ),
        Example(
            "a sequence on two GPUs by the engine's own setting",
            (
                *configured(
                    f"{ACTOR}.ppo_micro_batch_size_per_gpu=64",
                    f"+{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=2",
                ),
                _IN_ENGINE,
            ),
        ),
        Example(
            "a job that only validates",
            (
                *configured(
                    f"{ACTOR}.ppo_micro_batch_size_per_gpu=3",
                    "+trainer.val_only=True",
                    "+trainer.val_before_train=True",
                ),
                _IN_ENGINE,
            ),
        ),
        Example(
            "an adapter, without which the actor serves as the reference",
            (*configured(*_REFERENCE_CUT, "+actor_rollout_ref.model.lora.rank=8"), _IN_ENGINE),
        ),
        Example(
            "a reference of its own",
            (*configured(*_REFERENCE_CUT), _IN_ENGINE),
            "the 128 samples of the reference's batch on each GPU are not a multiple of 24",
        ),
        Example(
            "steps of a mini batch each",
            (
                *configured(*_REFERENCE_CUT, "+trainer.v1.trainer_mode=separate_async"),
                _IN_ENGINE,
            ),
            "the 32 samples of the reference's batch on each GPU are not a multiple of 24",
        ),
        Example(
            "batches of the job's own size",
            (*configured(*_REFERENCE_CUT, "+data.gen_batch_size=96"), _IN_ENGINE),
        ),
        Example(
            "answers of the job's own agents, of which a prompt may have several",
            (
                *configured(*_REFERENCE_CUT, f"+{ROLLOUT}.agent.agent_loop_config_path=/home/me/a.yaml"),
                _IN_ENGINE,
            ),
        ),
        Example(
            "log probabilities of a batch that the engine cannot cut",
            (
                *configured(f"+{LOG_PROBS}=False", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=24"),
                _IN_ENGINE,
            ),
            "the 128 samples of a batch on each GPU are not a multiple of 24",
        ),
        Example(
            "batches of the reference in tokens",
            (
                *configured(
                    f"{ACTOR}.use_kl_loss=True",
                    f"+{REF}.strategy=fsdp",
                    f"+{REF}.log_prob_use_dynamic_bsz=True",
                    f"{REF}.log_prob_micro_batch_size_per_gpu=24",
                ),
                _IN_ENGINE,
            ),
        ),
        Example(
            "rows of the job's own class",
            (
                *configured(
                    f"+{ROLLOUT}.mode=async", "+data.return_raw_chat=False", "+data.custom_cls.path=/a.py"
                ),
                _EVERY,
            ),
        ),
    ]


@check(
    "CFG108",
    phase="validation",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103", "CFG104"),
    examples=_examples,
)
def batch_sizes_do_not_fit(
    configuration: Configuration, demands: Demands, resources: Resources | Unknown
) -> Iterator[Finding]:
    """verl refuses these batch sizes, or settings that contradict each other.

    ## Why it matters
    verl checks them when the trainer or its workers start: after Ray is up, and in part after the model is
    loaded. The job stops there. Which of these requirements apply is read from verl's sources. A program with
    a trainer or workers of its own may not make them: that is a warning.

    ## How to fix
    Choose sizes that divide evenly: the number of GPUs must divide `train_batch_size` times `rollout.n`, and
    the micro batch per GPU must divide `ppo_mini_batch_size` times `rollout.n` per GPU. Of
    `..._micro_batch_size` and `..._micro_batch_size_per_gpu`, set only the second. Up to verl 0.6, an
    asynchronous rollout needs `data.return_raw_chat=True`.
    """
    padded = not demands.place("row without padding")
    here = _gpus_here(configuration, resources)
    for broken in (*_fixed(configuration), *dynamic_batches(configuration, padded=padded)):
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
                phase=broken.phase,
                subject=Subject("setting", broken.keys[0], broken.demand),
                **healed("CFG108", _correction(configuration, broken, here)),
            )


def _fixed(configuration: Configuration) -> Iterator[Broken]:
    """Yield the demands that are not met, apart from those on dynamic batches."""
    yield from broken_demands(configuration)
    yield from micro_batches(configuration)


def _gpus_here(configuration: Configuration, resources: Resources | Unknown) -> int:
    """This machine's number of GPUs if that is less than the job requests on each node; 0 otherwise."""
    here = 0 if isinstance(resources, Unknown) else len(resources.gpus or ())
    return here if here < (configuration.number(GPUS) or 0) else 0


def _correction(configuration: Configuration, broken: Broken, here: int) -> Correction | None:
    """The nearest settings that meet the demand on the existing GPUs.

    Settings for more GPUs would fail for lack of them.
    """
    if not here or GPUS not in broken.keys:
        first = settings(configuration, broken.values, broken.why) if broken.values else None
        others = (settings(configuration, values) for values in broken.others)
        return first and replace(first, others=tuple(filter(None, others)))
    after = copied(configuration.after)
    section, _, name = GPUS.rpartition(".")
    after[section][name] = here
    left = [other for other in _fixed(replace(configuration, after=after)) if other.demand == broken.demand]
    values = {key: value for other in left for key, value in other.values.items()}
    why = "; ".join([f"this machine has {counted(here, 'GPU')}", *(other.why for other in left)])
    effects = ["the job trains on fewer GPUs than the script requests", effect_of(configuration, values)]
    return settings(configuration, {GPUS: here, **values}, why, "; ".join(filter(None, effects)))


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
