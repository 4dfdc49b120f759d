"""CFG102: the launch script appends a key with `+` that is there already."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import asked, place, release, tree_of
from verl_doctor.checks.shared.corrections import healed, reworded
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


@check(
    "CFG102",
    phase="composition",
    examples=lambda: [
        Example("set without +", asked("trainer.nnodes=2")),
        Example("appended where nothing is", asked("+trainer.mine=2")),
        Example("++ takes both", asked("++trainer.nnodes=2")),
        Example("a key that is null", asked("+critic.enable=True")),
        Example("+ in front of a key of verl", asked("+trainer.nnodes=2"), "has trainer.nnodes already"),
    ],
)
def config_key_appended_twice(configuration: Configuration) -> Iterator[Finding]:
    """The launch script appends a key with + that already exists.

    ## Why it matters
    Hydra stops before anything starts: `Could not append to config. An item is already at ...`. It happens when a newer
    verl takes a key into its configuration that scripts used to append.

    ## How to fix
    Leave the `+` away. `++` sets the key whether it is there or not, for a script that serves several releases of verl.
    """
    for word in configuration.asked:
        if word.fate == "already there":
            yield Finding(
                f"{release(configuration)} has {word.key} already, so + is refused",
                Evidence(
                    found=word.text,
                    wanted=word.text.removeprefix("+"),
                    read_from=configuration.origins.get(word.key, tree_of(configuration)),
                ),
                location=place(word),
                remedy=f"Write {word.key} without +, or with ++ for verl releases that lack it",
                subject=Subject("setting", word.key),
                **healed("CFG102", reworded(word, word.text.removeprefix("+"))),
            )
