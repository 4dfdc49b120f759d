"""The search for settings that construction accepts, with functions in place of the construction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.construction.accepted import Accepted, Setting
from verl_doctor.toolkit.collectors.construction.accepted_search import search, with_settings
from verl_doctor.toolkit.collectors.construction.accepted_trials import trials
from verl_doctor.toolkit.collectors.construction.construction import Built, Construction, Frame
from verl_doctor.toolkit.collectors.construction.setting import setting_of
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Word
from verl_doctor.toolkit.facts import Unknown

TREE: Mapping[str, Any] = {
    "trainer": {"nnodes": 1, "save_freq": -1, "val_before_train": True},
    "data": {"train_batch_size": 1024, "max_prompt_length": 512, "max_response_length": 512, "prompt_key": "prompt", "custom_cls": {"path": None, "name": None}},
    "actor_rollout_ref": {
        "model": {"path": "~/m", "lora_rank": 0, "target_modules": "all-linear"},
        "rollout": {"top_p": 1.0, "n": 1, "mode": "async"},
        "actor": {"size": 4, "clip": 0.2, "use_kl": False},
    },
}  # fmt: skip
STAGES = ("composition", "data sets", "engine", "training engine")
Judge = Callable[[Configuration], Mapping[str, str]]
"""Returns the text of each stage that fails; "-" for one that is not needed, "?" for one that is not judged, "." for one that is not reached."""


def job(*words: str, path: str = "run.sh", tree: Mapping[str, Any] = TREE) -> Configuration:
    composed = Configuration("main_ppo.py", "/config", "ppo_trainer", before=tree, after=tree)
    return with_overrides(composed, [Word(text, path, number + 1, text) for number, text in enumerate(words)])


def built(configuration: Configuration, judge: Judge, until: str = "") -> Construction:
    states: Mapping[str, Any] = {"": "ok", "-": "not needed", "?": "not judged", ".": "not reached"}
    found = judge(configuration)
    stages: list[Built] = []
    for name in STAGES:
        text = found.get(name, "")
        if text in states:
            stages.append(Built(name, states[text], text=text))
            continue
        key, word = setting_of(text, "", (), configuration)
        frames = (Frame("/verl/x.py", len(text), "f", "verl"),)
        stages.append(
            Built(name, "breaks", 0.1, "ValueError", text, key, word.text if word else "", frames=frames)
        )
        if name == until:
            break
    return Construction(tuple(stages))


def found(
    words: Iterable[str], judge: Judge, tree: Mapping[str, Any] = TREE
) -> tuple[Accepted, list[list[str]]]:
    """Return the result of the search, and the words that it tried."""
    configuration, texts = job(*words, tree=tree), list(words)
    tried: list[list[str]] = []

    def build(overrides: Iterable[str], until: str) -> Construction:
        tried.append(list(overrides))
        return built(job(*tried[-1], tree=tree), judge, until)

    return search(built(configuration, judge), configuration, texts, build, Path("/job")), tried


def refusing(stage: str, key: str, text: str, fine: Callable[[Any], bool]) -> Judge:
    return lambda configuration: (
        {} if fine(configuration.get(key)) else {stage: text.format(configuration.get(key))}
    )


TOP_P, SIZE, KEY = "actor_rollout_ref.rollout.top_p", "actor_rollout_ref.actor.size", "data.prompt_key"
RANK, MODE = "actor_rollout_ref.model.lora_rank", "actor_rollout_ref.rollout.mode"


@pytest.mark.parametrize(
    ("word", "judge", "setting"),
    [
        (f"{TOP_P}=1.5", refusing("engine", TOP_P, "top_p must be in (0, 1], got {}", lambda value: 0 < value <= 1), Setting(TOP_P, left_out=True)),
        (f"{TOP_P}=7", refusing("engine", TOP_P, "top_p must be at most 0.95", lambda value: value <= 0.95), Setting(TOP_P, 0.95)),
        (f"{SIZE}=5", refusing("training engine", SIZE, "size {} does not divide 12", lambda value: 12 % value == 0), Setting(SIZE, 6)),
        (f"{SIZE}=32", refusing("training engine", SIZE, "size {} is less than 260", lambda value: value >= 260), Setting(SIZE, 260)),
        (f"{SIZE}=0", refusing("training engine", SIZE, "size must be larger than 0, got {}", lambda value: value > 0), Setting(SIZE, left_out=True)),
        (f"{KEY}=promt", refusing("data sets", KEY, "no column '{}', only 'prompt' and 'data'", lambda value: value == "prompt"), Setting(KEY, "prompt")),
        (f"{MODE}=async", refusing("engine", MODE, "mode '{}' is none of 'sync', 'own_async'", lambda value: value in ("sync", "own_async")), Setting(MODE, "own_async")),
        (f"{MODE}=sink", refusing("engine", MODE, "mode '{}' is none of 'sync', 'other'", lambda value: value == "sync"), Setting(MODE, "sync")),
    ],
)  # fmt: skip
def test_nearest_accepted_value_is_found(word: str, judge: Judge, setting: Setting) -> None:
    answer, tried = found(["trainer.nnodes=2", word, "trainer.save_freq=5"], judge)
    assert answer.settings == (setting,)
    assert answer.tried == len(tried) <= 8


def test_nothing_is_offered_if_several_names_may_be_meant() -> None:
    """Neither the nearest in letters, nor verl's default, which may be the opposite."""
    accepted = ("sync", "own_async", "other_async")
    text = f"mode '{{}}' is none of {accepted}"
    judge = refusing("engine", MODE, text, lambda value: value in (*accepted, None))
    answer, tried = found([f"{MODE}=async", "trainer.save_freq=5"], judge)
    assert answer.settings == ()
    assert answer.unclear == ("own_async", "other_async")
    assert not any(MODE in word and word != f"{MODE}=async" for words in tried for word in words)


def test_limit_is_not_fitted_to_the_sampled_rows() -> None:
    """Other rows are longer. All that the job allows has to fit."""
    key = "actor_rollout_ref.actor.size"
    lengths = ["data.max_prompt_length=100", "data.max_response_length=60"]
    configuration = job(*lengths, f"{key}=32")
    fault = Built(
        "micro batches", "breaks", text="size is 32 and max_seq_len is 41", kind="AssertionError", key=key
    )
    first = [setting for setting in trials(fault, configuration, Path("/job")) if setting.key == key]
    assert first == [Setting(key, 160), Setting(key, left_out=True)]


def test_only_the_wrong_entry_is_left_out() -> None:
    key = "+actor_rollout_ref.actor.options"
    judge = refusing(
        "training engine", key[1:], "unexpected argument 'momentum'", lambda value: "momentum" not in value
    )
    answer, tried = found([f"{key}={{amsgrad:False,momentum:0.9}}"], judge)
    assert answer.settings == (Setting(key[1:], {"amsgrad": False}),)
    assert tried[-1] == [f"{key}={{amsgrad:False}}"]


def test_words_are_left_out_in_turn_if_the_message_names_none() -> None:
    judge = refusing("training engine", SIZE, "it does not work", lambda value: value == 4)
    answer, _ = found(["trainer.save_freq=5", f"{SIZE}=5", "data.train_batch_size=8"], judge)
    assert answer.settings == (Setting(SIZE, left_out=True),)


def test_second_fault_after_the_first_is_repaired() -> None:
    def judge(configuration: Configuration) -> Mapping[str, str]:
        if configuration.get(KEY) != "prompt":
            return {"data sets": f"no column '{configuration.get(KEY)}'", "engine": "."}
        return {} if configuration.get(TOP_P) <= 1 else {"engine": "top_p must be in (0, 1]"}

    answer, _ = found([f"{KEY}=promt", f"{TOP_P}=1.5"], judge)
    assert {setting.key for setting in answer.settings} == {KEY, TOP_P}


def test_edit_made_unnecessary_by_another_is_undone() -> None:
    """The adapter cannot work at all, so its modules need not be corrected."""
    modules = "actor_rollout_ref.model.target_modules"

    def judge(configuration: Configuration) -> Mapping[str, str]:
        if not configuration.get(RANK):
            return {"engine": "-"}
        wrong = configuration.get(modules) != "all-linear"
        return (
            {"data sets": "target_modules q_projj not found"}
            if wrong
            else {"engine": "lora_rank is not supported"}
        )

    answer, _ = found([f"{RANK}=8", f"{modules}=q_projj"], judge)
    assert answer.settings == (Setting(RANK, left_out=True),)


def test_second_fault_of_the_same_stage_is_found() -> None:
    def judge(configuration: Configuration) -> Mapping[str, str]:
        if configuration.get(SIZE) == 5:
            return {"engine": "size is odd"}
        return {"engine": "mode is wrong"} if configuration.get(MODE) == "sink" else {}

    answer, _ = found([f"{SIZE}=5", f"{MODE}=sink"], judge)
    assert {setting.key for setting in answer.settings} == {SIZE, MODE}


def test_repairing_the_stage_is_preferred_to_disabling_it() -> None:
    def judge(configuration: Configuration) -> Mapping[str, str]:
        if configuration.get("actor_rollout_ref.actor.use_kl") is not True:
            return {"composition": "-"}
        return {"composition": "it fails"} if configuration.get(TOP_P) > 1 else {}

    switch = "actor_rollout_ref.actor.use_kl=True"
    assert found([switch, f"{TOP_P}=1.5"], judge)[0].settings == (Setting(TOP_P, left_out=True),)
    default = {**TREE, "actor_rollout_ref": {**TREE["actor_rollout_ref"], "rollout": {"top_p": 1.5}}}
    assert found([switch], judge, tree=default)[0].settings[0].key == "actor_rollout_ref.actor.use_kl"


@pytest.mark.parametrize("lost", ["fails", "?"])
def test_repair_that_breaks_another_stage_is_rejected(lost: str) -> None:
    """Without the word the fault disappears, but another stage fails or can no longer be judged."""

    def judge(configuration: Configuration) -> Mapping[str, str]:
        return {"engine": "size is 5"} if configuration.get(SIZE) == 5 else {"composition": lost}

    answer, _ = found([f"{SIZE}=5"], judge)
    assert answer.settings == ()
    assert answer.left == "engine: ValueError: size is 5"


def test_stage_no_longer_judged_does_not_count_as_repaired() -> None:
    answer, _ = found(
        [f"{SIZE}=5"], lambda configuration: {"engine": "size is 5" if configuration.get(SIZE) == 5 else "?"}
    )
    assert answer.settings == ()


def test_process_that_ended_early_proves_nothing() -> None:
    configuration = job(f"{SIZE}=5")
    first = built(configuration, lambda _: {"engine": "size is 5"})
    answer = search(
        first, configuration, [f"{SIZE}=5"], lambda *_: Construction(first.stages[:2]), Path("/job")
    )
    assert answer.settings == ()


@pytest.mark.slow
def test_search_is_limited_in_trials_and_time() -> None:
    words = [f"+actor_rollout_ref.actor.option{number}={number}" for number in range(100)]
    answer, tried = found(words, lambda _: {"training engine": "no"})
    assert (answer.settings, answer.tried, len(tried)) == ((), 60, 60)
    configuration = job(*words)
    over = search(
        built(configuration, lambda _: {"engine": "no"}),
        configuration,
        words,
        lambda *_: Unknown("configuration is no time left"),
        Path("/job"),
    )
    assert over.settings == ()


@pytest.mark.parametrize(
    "word",
    [
        "actor_rollout_ref.model.path=/models/x",
        "trainer.nnodes=2",
        "data.custom_cls.path=mine.py",
        "algorithm.adv_estimator=gae",
    ],
)
def test_purpose_of_the_job_is_not_changed(word: str) -> None:
    key, _, value = word.partition("=")
    fault = Built("engine", "breaks", text=f"{key} is {value}", kind="ValueError", key=key)
    assert [setting for setting in trials(fault, job(word), Path("/job")) if setting.key == key] == []


def test_words_that_are_not_in_a_file_are_kept() -> None:
    fault = Built("engine", "breaks", text="top_p is 1.5", kind="ValueError", key=TOP_P)
    assert list(trials(fault, job(f"{TOP_P}=1.5", path=COMMAND_LINE), Path("/job"))) == []


@pytest.mark.parametrize(
    "fault",
    [
        Built("engine", "breaks", text="No module named 'x'", kind="ModuleNotFoundError"),
        Built(
            "engine",
            "breaks",
            text="'points'",
            kind="KeyError",
            frames=(Frame("/job/mine.py", 2, "score", "user"),),
        ),
    ],
    ids=["a missing package", "the user's own code"],
)
def test_settings_that_nothing_names_are_not_left_out_for(fault: Built) -> None:
    assert list(trials(fault, job(f"{TOP_P}=0.9", f"{SIZE}=8"), Path("/job"))) == []


def test_names_of_the_users_file_are_tried(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class MyDataset: pass\n\ndef helper(): pass\n")
    words = ["data.custom_cls.path=mine.py", "data.custom_cls.name=MyDataSet"]
    fault = Built("data sets", "breaks", text="MyDataSet is not there", kind="AttributeError")
    first = next(iter(trials(fault, job(*words), tmp_path)))
    assert first == Setting("data.custom_cls.name", "MyDataset")


def test_words_keep_their_order_and_signs() -> None:
    words = ["a.b=1", "++actor_rollout_ref.actor.extra=2", f"{SIZE}=3"]
    changed = [
        Setting("actor_rollout_ref.actor.extra", [1, "x y"]),
        Setting(SIZE, left_out=True),
        Setting(TOP_P, 0.5),
    ]
    assert with_settings(job(*words), words, changed) == [
        "a.b=1",
        "++actor_rollout_ref.actor.extra=[1,'x y']",
        f"{TOP_P}=0.5",
    ]
