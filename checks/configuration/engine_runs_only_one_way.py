"""CFG133: the engine of a trained model only runs forward, or that of the reference model would train."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.demands import Demands
from verl_doctor.toolkit.collectors.configuration.roles import has_no_adapter, is_read, no_update
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Phase, Subject, check

_MODEL = "actor_rollout_ref.model"
_REFERENCE = "actor_rollout_ref.ref.fsdp_config.forward_only"
_ACTOR = "actor_rollout_ref.actor.fsdp_config.forward_only"
_TRAINED = (
    (_ACTOR, "the actor"),
    ("critic.fsdp.forward_only", "the critic"),
    ("engine.forward_only", "the model"),
)
_WITH_REFERENCE = "actor_rollout_ref.actor.use_kl_loss=True"
_EVERY = Demands(
    {
        "train in both directions": "/env/verl/workers/engine_workers.py:345",
        "optimizer of the reference": "/env/verl/workers/engine_workers.py:574",
    }
)


def _examples() -> list[Example]:
    return [
        Example("verl's defaults", (*configured(_WITH_REFERENCE), _EVERY)),
        Example(
            "the same values",
            (*configured(_WITH_REFERENCE, f"+{_ACTOR}=False", f"+{_REFERENCE}=True"), _EVERY),
        ),
        Example(
            "an actor that cannot learn",
            (*configured(f"+{_ACTOR}=True"), _EVERY),
            "the actor is trained, but its engine only runs forward",
        ),
        Example("a release without this check", (*configured(f"+{_ACTOR}=True"), Demands())),
        Example(
            "a reference that would learn",
            (*configured(_WITH_REFERENCE, f"+{_REFERENCE}=False"), _EVERY),
            "the reference model is not trained, and verl gives it no optimizer",
        ),
        Example("no reference", (*configured(f"+{_REFERENCE}=False"), _EVERY)),
        Example(
            "the actor without its adapter is the reference",
            (*configured(_WITH_REFERENCE, f"+{_REFERENCE}=False", f"{_MODEL}.lora_rank=8"), _EVERY),
        ),
        Example(
            "an adapter by the key of the other engines",
            (*configured(_WITH_REFERENCE, f"+{_REFERENCE}=False", f"+{_MODEL}.lora.rank=8"), _EVERY),
        ),
    ]


@check(
    "CFG133",
    phase="first update",
    applies=no_update,
    requires=("CFG101", "CFG102", "CFG103"),
    examples=_examples,
    since="0.2",
)
def engine_runs_only_one_way(configuration: Configuration, demands: Demands) -> Iterator[Finding]:
    """The engine of a trained model only runs forward, or that of the reference model would train.

    ## Why it matters

    `forward_only` is True for the reference model and False for every model that learns. With True, verl
    builds no optimizer and refuses the first update: `Can't run train_batch when forward_only is in the
    engine config`. With False, it builds an optimizer for the reference model from settings that the
    reference does not have: `'OptimizerConfig' object has no attribute 'optimizer'`.

    ## How to fix

    Leave `forward_only` out: verl's defaults are right.
    """
    if where := demands.place("train in both directions"):
        for key, model in _TRAINED:
            if configuration.get(key) is True and is_read(configuration, key):
                message = f"{model} is trained, but its engine only runs forward: {key}=True"
                yield _finding(configuration, key, message, where, "first update", value=False)
    where = demands.place("optimizer of the reference")
    if where and configuration.get(_REFERENCE) is False and _has_engine(configuration):
        message = f"the reference model is not trained, and verl gives it no optimizer: {_REFERENCE}=False"
        yield _finding(configuration, _REFERENCE, message, where, "workers", value=True)


def _has_engine(configuration: Configuration) -> bool:
    """Return whether the reference is a model of its own, without settings of an optimizer."""
    has_optimizer = configuration.get("actor_rollout_ref.ref.optim") is not MISSING
    return is_read(configuration, _REFERENCE) and has_no_adapter(configuration) and not has_optimizer


def _finding(
    configuration: Configuration, key: str, message: str, where: str, phase: Phase, *, value: bool
) -> Finding:
    word, own = configuration.override_of(key), configuration.own_line(key)
    return Finding(
        message,
        Evidence(
            found=word.text if word else f"{key}: {not value}", wanted=f"{key}={value}", read_from=where
        ),
        location=place(word) if word else own and Location(*own),
        remedy=f"remove {key}",
        subject=Subject("setting", key),
        stops=(EVERY_JOB,),
        phase=phase,
        **healed("CFG133", settings(configuration, {key: value}, "verl's default")),
    )
