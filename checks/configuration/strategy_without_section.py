"""CFG121: the strategy does not fit the configuration that was composed."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place, tree_of
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_ACTOR = "actor_rollout_ref.actor"
_STRATEGY = f"{_ACTOR}.strategy"
_MEGATRON = f"{_ACTOR}.megatron"
_PROGRAM = "/trainer/main_ppo.py"
_ENGINE = "model_engine"  # the group that chooses the sections, from verl 0.7 on


def _examples() -> list[Example]:
    return [
        Example("verl's default", configured()),
        Example("an unknown value", configured(f"{_STRATEGY}=${{oc.env:S}}")),
        Example(
            "the section is appended",
            configured(f"{_STRATEGY}=megatron", f"+{_MEGATRON}.tensor_model_parallel_size=1"),
        ),
        Example(
            "Megatron with the sections of FSDP",
            configured(f"{_STRATEGY}=megatron"),
            "actor.strategy is megatron, but the configuration has no actor.megatron",
        ),
    ]


@check("CFG121", requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2")
def strategy_without_section(configuration: Configuration) -> Iterator[Finding]:
    """The strategy does not fit the composed configuration.

    ## Why it matters
    `actor.strategy` alone does not switch a job to Megatron: its settings are in `actor.megatron`, a section
    that only Megatron's configuration has. verl reads it before anything starts: `Key 'megatron' is not in
    struct`.

    ## How to fix
    Choose the whole configuration: `model_engine=megatron` where this verl has that group, else
    `--config-name=ppo_megatron_trainer`. Leave out `actor.strategy`: the configuration sets it.
    """
    if configuration.get(_STRATEGY) != "megatron" or _has_section(configuration):
        return
    word = configuration.override_of(_STRATEGY)
    remedy = (
        f"remove {_STRATEGY} and set {_ENGINE}=megatron"
        if configuration.has(_ENGINE)
        else f"remove {_STRATEGY} and start with --config-name=ppo_megatron_trainer"
    )
    yield Finding(
        "actor.strategy is megatron, but the configuration has no actor.megatron",
        Evidence(
            found=word.text if word else f"{_STRATEGY}=megatron",
            wanted=f"a section {_MEGATRON}",
            read_from=tree_of(configuration),
        ),
        location=place(word) if word else None,
        remedy=remedy,
        subject=Subject("setting", _STRATEGY),
        **healed("CFG121", settings(configuration, {_STRATEGY: LEAVE_OUT})),
        stops=(EVERY_JOB,),
        phase="validation",
    )


def _has_section(configuration: Configuration) -> bool:
    section = configuration.get(_MEGATRON)
    return (
        isinstance(section, dict)
        or not configuration.program.endswith(_PROGRAM)
        or not configuration.has(_ACTOR)
    )
