"""CFG115: a key is appended to a section whose class does not take it."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import SCRIPT, place
from verl_doctor.checks.shared.corrections import healed, reworded
from verl_doctor.toolkit.collectors.configuration.config_classes import ConfigClasses, Refused
from verl_doctor.toolkit.collectors.configuration.configuration import OverrideWord
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_ACTOR = "actor_rollout_ref.actor"
_WORD = OverrideWord(f"+{_ACTOR}.mine=1", SCRIPT, 3, "applied", f"{_ACTOR}.mine", "+", 1)
_REFUSED = Refused(
    _WORD, _ACTOR, "mine", "verl.workers.config.FSDPActorConfig", "/env/verl/utils/config.py:164"
)


@check(
    "CFG115",
    phase="validation",
    examples=lambda: [
        Example("every class accepts what is appended", (ConfigClasses(),)),
        Example(
            "a field that the class lacks", (ConfigClasses((_REFUSED,)),), "FSDPActorConfig has no field mine"
        ),
    ],
)
def config_key_refused_by_class(classes: ConfigClasses) -> Iterator[Finding]:
    """A key is appended to a section whose class does not accept it.

    ## Why it matters
    Newer verl turns sections that have a `_target_` into objects. Hydra accepts an appended key, but the
    class refuses it when it validates the configuration: `unexpected keyword argument`. Older verl kept these
    sections as plain dictionaries and accepted it.

    ## How to fix
    Remove the key, or use the key that this verl has for it. Put the settings of your own code into a
    separate section.
    """
    for refused in classes.refused:
        name = refused.class_name.rpartition(".")[2]
        yield Finding(
            f"{name} has no field {refused.name}, so verl refuses {refused.section}.{refused.name}",
            Evidence(
                found=refused.word.text,
                wanted=f"a field of {refused.class_name}",
                read_from=refused.read_from,
            ),
            location=place(refused.word),
            remedy=f"remove {refused.word.key}, or put it in a section of its own",
            subject=Subject("setting", f"{refused.section}.{refused.name}"),
            **healed(
                "CFG115",
                reworded(
                    refused.word,
                    None,
                    effect=f"{name} has no equivalent, so the job runs without {refused.word.text}",
                ),
            ),
        )
