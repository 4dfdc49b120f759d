"""CFG115: a key is appended to a section whose class does not take it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.configuration._verl_keys import alike, is_slip, without_added
from verl_doctor.checks.shared.configuration import SCRIPT, configured, place
from verl_doctor.checks.shared.corrections import healed, reworded
from verl_doctor.toolkit.collectors.configuration.config_classes import ConfigClasses, Refused
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Subject, check

_ACTOR = "actor_rollout_ref.actor"
_WORD = OverrideWord(
    text=f"+{_ACTOR}.mine=1", path=SCRIPT, line=3, fate="applied", key=f"{_ACTOR}.mine", sign="+", value=1
)
_REFUSED = Refused(
    word=_WORD,
    section=_ACTOR,
    name="mine",
    class_name="verl.workers.config.FSDPActorConfig",
    read_from="/env/verl/utils/config.py:164",
)
_UNREAD = Unknown("the configuration was not read")


def _examples() -> list[Example]:
    return [
        Example("every class accepts what is appended", (ConfigClasses(), _UNREAD)),
        Example(
            "a field that the class lacks",
            (ConfigClasses((_REFUSED,)), _UNREAD),
            "FSDPActorConfig has no field mine",
        ),
        Example(
            "workers of the job's own may read it",
            (ConfigClasses((_REFUSED,)), replace(*configured(), own_parts=True)),
            "FSDPActorConfig has no field mine",
        ),
    ]


@check("CFG115", phase="validation", examples=_examples)
def config_key_refused_by_class(
    classes: ConfigClasses, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """A key is appended to a section whose class does not accept it.

    This happens on the command line or in your configuration file.

    ## Why it matters
    Newer verl turns sections that have a `_target_` into objects. Hydra accepts an appended key, but the
    class refuses it when it validates the configuration: `unexpected keyword argument`. Older verl kept these
    sections as plain dictionaries and accepted it.

    ## How to fix
    Remove the key, or use the key that this verl has for it. Put the settings of your own code into a
    separate section.

    This is a warning for a program with a trainer or workers of its own, which may not make these objects.
    """
    is_certain = isinstance(configuration, Unknown) or not configuration.own_parts
    for refused in classes.refused:
        name = refused.class_name.rpartition(".")[2]
        near = _meant(refused, configuration)
        yield Finding(
            f"{name} has no field {refused.name}, so verl refuses {refused.section}.{refused.name}"
            + (f"; did you mean {near}?" if near else ""),
            Evidence(
                found=refused.word.text,
                wanted=f"a field of {refused.class_name}",
                read_from=refused.read_from,
            ),
            location=place(refused.word),
            remedy=f"write {near} instead of {refused.word.key}"
            if near
            else f"remove {refused.word.key}, or put it in a section of its own",
            severity=None if is_certain else "warning",
            subject=Subject("setting", f"{refused.section}.{refused.name}"),
            **healed("CFG115", _correction(refused, near)),
        )


def _meant(refused: Refused, configuration: Configuration | Unknown) -> str:
    """The existing key probably meant; "" if there is none or another word of the command sets it."""
    if isinstance(configuration, Unknown) or refused.word.key != f"{refused.section}.{refused.name}":
        return ""
    near = alike(refused.word.key, without_added(configuration))
    return near if near and configuration.override_of(near) is None else ""


def _correction(refused: Refused, near: str) -> Correction | None:
    """Write the key that was meant; without one, remove the word."""
    word = refused.word
    if not near:
        name = refused.class_name.rpartition(".")[2]
        return reworded(word, None, effect=f"{name} has no equivalent, so the job runs without {word.text}")
    sign = "" if word.sign == "+" else word.sign
    effect = "" if is_slip(word.key, near) else f"{near} may not be what {word.key} meant"
    why = "" if effect else f"{near} is what {word.key} means"
    return reworded(word, f"{sign}{near}={word.text.partition('=')[2]}", why, effect)
