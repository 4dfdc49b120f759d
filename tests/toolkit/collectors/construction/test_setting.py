"""Which setting an exception is about."""

from __future__ import annotations

import pytest

from verl_doctor.checks.shared.configuration import SCRIPT, configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.construction.setting import setting_of

ROLLOUT = "actor_rollout_ref.rollout"


def there(*words: str) -> Configuration:
    return configured(*words)[0]


@pytest.mark.parametrize(
    ("text", "key", "usual", "wanted"),
    [
        ("Key 'megatron' is not in struct", "actor_rollout_ref.actor.megatron", (), "actor_rollout_ref.actor.strategy=megatron"),
        ("Rollout mode 'sync': set `actor_rollout_ref.rollout.n`", "", (), f"{ROLLOUT}.n=4"),
        ("max_num_seqs must be at least 1", "", (), f"{ROLLOUT}.max_num_seqs=0"),
        ("Unknown advantage estimator: grpoo", "", (), "algorithm.adv_estimator=grpoo"),
        ("'prompt'", "", ("data.train_files",), "data.train_files=/d/t.parquet"),
        ("Repo id must be in the form", "critic.model", (), "algorithm.adv_estimator=grpoo"),
    ],
)  # fmt: skip
def test_matching_word_of_the_command_is_found(
    text: str, key: str, usual: tuple[str, ...], wanted: str
) -> None:
    words = (
        f"{ROLLOUT}.n=4",
        f"{ROLLOUT}.max_num_seqs=0",
        "actor_rollout_ref.actor.strategy=megatron",
        "data.train_files=/d/t.parquet",
        "algorithm.adv_estimator=grpoo",
    )
    if "megatron" in key:
        key = "actor_rollout_ref.actor.strategy"
    _, word = setting_of(text, key, usual, there(*words))
    assert word is not None
    assert (word.text, word.path, word.line) == (wanted, SCRIPT, words.index(wanted) + 2)


def test_text_without_a_name_matches_no_setting() -> None:
    assert setting_of("something broke", "", (), there(f"{ROLLOUT}.n=4")) == ("", None)


def test_short_values_are_not_matched() -> None:
    assert setting_of("at least 4 of them", "", (), there(f"{ROLLOUT}.n=4", "+a.b=at")) == ("", None)


def test_key_not_set_on_the_command_line_is_reported_without_a_word() -> None:
    found = setting_of("no", "data.train_batch_size", (), there(f"{ROLLOUT}.n=4"))
    assert found == ("data.train_batch_size", None)
