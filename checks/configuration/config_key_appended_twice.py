"""CFG102: the launch script appends a key with `+` that is there already."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, if_added, place, release, severity_of, tree_of
from verl_doctor.checks.shared.corrections import healed, reworded
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("set without +", configured("trainer.nnodes=2")),
        Example("appended where nothing is", configured("+trainer.mine=2")),
        Example("++ accepts both", configured("++trainer.nnodes=2")),
        Example("a key that is null", configured("+critic.enable=True")),
        Example("+ in front of a key of verl", configured("+trainer.nnodes=2"), "already has trainer.nnodes"),
    ]


@check("CFG102", phase="composition", examples=_examples)
def config_key_appended_twice(configuration: Configuration) -> Iterator[Finding]:
    """The launch script appends a key with + that already exists.

    ## Why it matters
    Hydra stops before anything starts: `Could not append to config. An item is already at ...`. This happens
    when a newer verl adds a key that scripts used to append.

    ## How to fix
    Drop the `+`. `++` sets the key whether or not it exists, which suits a script for several releases of
    verl.
    """
    for word in configuration.overrides:
        if word.fate == "already there":
            yield Finding(
                f"{release(configuration)} already has {word.key}, so Hydra refuses the +{if_added(word)}",
                Evidence(
                    found=word.text,
                    wanted=word.text.removeprefix("+"),
                    read_from=configuration.origins.get(word.key, tree_of(configuration)),
                ),
                location=place(word),
                remedy=f"write {word.key} without +, or with ++ for verl releases that lack it",
                severity=severity_of(word),
                subject=Subject("setting", word.key),
                **healed("CFG102", reworded(word, word.text.removeprefix("+"))),
            )
