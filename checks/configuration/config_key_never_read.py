"""CFG118: the launch script sets a key that Hydra accepts and that verl's trainer never reads."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place, release, tree_of
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.old_reward_keys import OldRewardKeys
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_OLD = "custom_reward_function"
_KEYS = (_OLD, f"{_OLD}.path", f"{_OLD}.name")
_MINE = f"{_OLD}.path=mine.py"


def _job(word: str, moved_by: str = "") -> tuple[Configuration, OldRewardKeys]:
    tree = {_OLD: {"path": None, "name": None}, "reward": {_OLD: {"path": None, "name": "compute_score"}}}
    (job,) = configured(word, tree=tree, verl="0.9.1")
    return job, OldRewardKeys(_KEYS, moved_by)


@check(
    "CFG118",
    severity="warning",
    examples=lambda: [
        Example("the key that is read", _job(f"reward.{_MINE}")),
        Example("a verl that moves it", _job(_MINE, "/env/verl/trainer/main_ppo.py")),
        Example("nothing is set", _job(f"{_OLD}.path=null")),
        Example("the key that nothing reads", _job(_MINE), "accepts custom_reward_function.path but never reads it"),
    ],
)  # fmt: skip
def config_key_never_read(configuration: Configuration, old: OldRewardKeys) -> Iterator[Finding]:
    """The launch script sets a key that Hydra accepts but verl's trainer never reads.

    ## Why it matters
    The reward settings moved below `reward.`; the old keys remain so that older scripts start. Where the
    trainer does not copy their values (main_ppo of verl 0.9.0 and 0.9.1), your reward function is never
    called. The job trains on verl's default for your data source, or every prompt ends in *Reward function is
    not implemented*.

    ## How to fix
    Write `reward.` before the key: `reward.custom_reward_function.path=...`.
    """
    if old.moved_by:
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
