from __future__ import annotations

from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.commands.smoke.rehearsal.overrides import Replaced, words_for
from verl_doctor.toolkit.commands.smoke.rehearsal.requirements import RequiredValue

TREE: dict[str, Any] = {
    "data": {"train_batch_size": 1024, "gen_batch_size": None},
    "trainer": {"device": "cuda", "logger": ["console", "wandb"]},
    "rollout": {"n": 1, "size": "${data.train_batch_size}"},
    "custom": {"path": None},
}


def configuration_of(*texts: str) -> tuple[Configuration, list[Word]]:
    words = [Word(text, "run.sh", 3, text) for text in texts]
    empty = Configuration("main.py", "config", "ppo", before=TREE, after=TREE)
    return with_overrides(empty, words), words


def never(_: str) -> bool:
    return False


def test_replaced_value_of_the_script_is_shown() -> None:
    configuration, words = configuration_of("trainer.device=npu", "data.train_batch_size=64")
    out = words_for(configuration, words, [RequiredValue(("trainer.device",), "cpu", "device")], never)
    assert out.words == ("trainer.device=npu", "data.train_batch_size=64", "++trainer.device='cpu'")
    assert out.replaced == (Replaced("trainer.device", "npu", "cpu", "device", from_script=True),)


def test_default_of_verl_is_replaced() -> None:
    out = words_for(*configuration_of(), [RequiredValue(("trainer.device",), "cpu", "device")], never)
    assert [setting.from_script for setting in out.replaced] == [False]


def test_unknown_key_is_left_out_and_an_older_name_used() -> None:
    required = [
        RequiredValue(("trainer.v9.mode",), "sync", ""),
        RequiredValue(("reward.custom.path", "custom.path"), "r.py", ""),
    ]
    assert words_for(*configuration_of(), required, never).words == ("++custom.path='r.py'",)


def test_smaller_or_unset_numbers_are_kept() -> None:
    required = [
        RequiredValue(("data.train_batch_size",), 2, "", most=True),
        RequiredValue(("rollout.n",), 2, "", most=True),
        RequiredValue(("data.gen_batch_size",), 2, "", most=True),
    ]
    assert words_for(*configuration_of(), required, never).words == ("++data.train_batch_size=2",)


def test_hidden_key_is_added_only_if_the_sources_read_it() -> None:
    want = RequiredValue(("rollout.enable_sleep_mode",), False, "", hidden=True)
    assert words_for(*configuration_of(), [want], never).words == ()
    assert words_for(*configuration_of(), [want], "enable_sleep_mode".__eq__).words == (
        "++rollout.enable_sleep_mode=false",
    )


def test_key_passed_to_another_library_is_added_below_its_section() -> None:
    required = [
        RequiredValue(("trainer.any", "x"), 1, "", passed_on=True),
        RequiredValue(("gone.any",), 1, "", passed_on=True),
    ]
    assert words_for(*configuration_of(), required, never).words == ("++trainer.any=1",)


def test_value_required_only_if_set_is_not_added() -> None:
    want = RequiredValue(("rollout.n",), 7, "", only_if_set=True)
    assert words_for(*configuration_of(), [want], never).words == ()
    assert words_for(*configuration_of("rollout.n=4"), [want], never).words == (
        "rollout.n=4",
        "++rollout.n=7",
    )


def test_undetermined_word_is_left_out_and_named() -> None:
    configuration, _ = configuration_of()
    out = words_for(configuration, [Word(None, "run.sh", 4, "trainer.name=$(date)")], [], never)
    assert (out.words, out.undetermined) == ((), ("trainer.name=$(date)",))
