"""CFG118: the user sets a key that Hydra accepts and that verl's trainer never reads.

The key is in the launch script or the user's configuration file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from verl_doctor.checks.configuration._verl_keys import alike, is_free, is_slip, without_added
from verl_doctor.checks.shared.configuration import configured, place, release, tree_of
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.old_reward_keys import OldRewardKeys
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_PLAIN = re.compile(r"[\w.+-]+")  # a value that means the same in YAML and on the command line
_OLD = "custom_reward_function"
_KEYS = (_OLD, f"{_OLD}.path", f"{_OLD}.name")
_MINE = f"{_OLD}.path=mine.py"


def _job(word: str, moved_by: str = "") -> tuple[Configuration, OldRewardKeys]:
    tree = {_OLD: {"path": None, "name": None}, "reward": {_OLD: {"path": None, "name": "compute_score"}}}
    (job,) = configured(word, tree=tree, verl="0.9.1")
    return job, OldRewardKeys(keys=_KEYS, moved_by=moved_by)


def _own(*words: str, key: str) -> tuple[Configuration, Absent]:
    """A configuration file of the user's own, which sets another key than verl's."""
    (configuration,) = configured(*words, tree={"data": {"max_response_length": 512, key: 16}})
    mine = replace(
        configuration, folder="/home/me/config", name="mine", origins={f"data.{key}": "mine.yaml:7"}
    )
    return replace(mine, added=(f"data.{key}",)), Absent("this verl has one name for each key of the reward")


def _examples() -> list[Example]:
    return [
        Example("the key that is read", _job(f"reward.{_MINE}")),
        Example("a verl that moves it", _job(_MINE, "/env/verl/trainer/main_ppo.py")),
        Example("nothing is set", _job(f"{_OLD}.path=null")),
        Example("a key of the user's own code", _own(key="my_length")),
        Example(
            "the right key is on the command line",
            _own("data.max_response_length=16", key="max_respons_length"),
        ),
        Example(
            "a typo in the user's own file",
            _own(key="max_respons_length"),
            "did you mean data.max_response_length?",
        ),
        Example(
            "the key that nothing reads",
            _job(_MINE),
            "accepts custom_reward_function.path but never reads it",
        ),
    ]


@check("CFG118", severity="warning", examples=_examples)
def config_key_never_read(configuration: Configuration, old: OldRewardKeys | Unknown) -> Iterator[Finding]:
    """Hydra accepts a key in the launch script or your configuration file that verl's trainer never reads.

    ## Why it matters
    The reward settings moved below `reward.`; the old keys remain so that older scripts start. Where the
    trainer does not copy their values (main_ppo of verl 0.9.0 and 0.9.1), your reward function is never
    called. The job trains on verl's default for your data source, or every prompt ends in *Reward function is
    not implemented*.

    A configuration file of your own may add any key. A misspelt one is added beside verl's, which keeps its
    value.

    ## How to fix
    Write `reward.` before the key: `reward.custom_reward_function.path=...`. Correct a misspelt key.
    """
    for key in configuration.added:
        yield from _misspelt(key, configuration)
    if isinstance(old, Unknown) or old.moved_by:
        return
    for word in configuration.overrides:
        if word.fate == "applied" and word.key in old.keys and word.value is not None:
            yield Finding(
                f"{release(configuration)} accepts {word.key} but never reads it",
                Evidence(
                    found=word.text,
                    wanted=f"reward.{word.key}",
                    read_from=configuration.origins.get(word.key, tree_of(configuration)),
                ),
                location=place(word),
                remedy=f"write reward.{word.key}",
                subject=Subject("setting", word.key),
            )


def _misspelt(key: str, configuration: Configuration) -> Iterator[Finding]:
    """Yield the finding that a key of the user's own file is a typo.

    It is a typo of a key that nothing else of the user's sets.
    """
    value, own = configuration.get(key), configuration.own_line(key)
    refused = configuration.has(f"{key.rpartition('.')[0]}._target_")  # by the section's class: CFG115
    if own is None or isinstance(value, Mapping) or is_free(key, configuration) or refused:
        return
    near = alike(key, without_added(configuration))
    if not near or not is_slip(key, near) or configuration.override_of(near) or configuration.own_line(near):
        return
    changes = _PLAIN.fullmatch(str(value)) and value != configuration.get(near)
    yield Finding(
        f"{release(configuration)} has no setting {key}, which your file adds; did you mean {near}?",
        Evidence(found=f"{key}: {value}", wanted=f"{near}: {value}", read_from=tree_of(configuration)),
        location=Location(*own),
        remedy=f"write {near} instead of {key}",
        subject=Subject("setting", key),
        **healed("CFG118", settings(configuration, {near: value}) if changes else None),
    )
