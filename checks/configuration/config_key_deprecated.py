"""CFG110: the launch script sets a key that verl calls deprecated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.configuration import configured, place, release, tree_of
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_OLD = "actor_rollout_ref.rollout.log_prob_micro_batch_size"
_COMMENT = "[Will be deprecated, use log_prob_micro_batch_size_per_gpu]"


def _with_comment(word: str) -> tuple[Configuration]:
    return (replace(configured(word)[0], deprecated={_OLD: _COMMENT}),)


def _examples() -> list[Example]:
    return [
        Example("the new key", _with_comment(f"{_OLD}_per_gpu=8")),
        Example("nothing is set", _with_comment(f"{_OLD}=null")),
        Example(
            "the old key",
            _with_comment(f"{_OLD}=64"),
            "actor_rollout_ref.rollout.log_prob_micro_batch_size is deprecated",
        ),
    ]


@check("CFG110", severity="warning", examples=_examples)
def config_key_deprecated(configuration: Configuration) -> Iterator[Finding]:
    """The launch script sets a key that verl has deprecated.

    ## Why it matters
    It works with this verl and stops the job after an upgrade. Some deprecated keys are refused together with
    their successors. The list is read from the comments in verl's own configuration files.

    ## How to fix
    Use the key that the comment names. `..._micro_batch_size` counts the samples on all GPUs,
    `..._micro_batch_size_per_gpu` those on one: divide by the number of GPUs.
    """
    for word in configuration.overrides:
        comment = configuration.deprecated.get(word.key)
        if comment and word.fate == "applied" and word.value is not None:
            yield Finding(
                f"{word.key} is deprecated in {release(configuration)}",
                Evidence(
                    found=word.text, read_from=configuration.origins.get(word.key, tree_of(configuration))
                ),
                location=place(word),
                remedy=f"replace it as verl's comment describes: '{comment[:200]}'",
                subject=Subject("setting", word.key),
            )
