"""What the job reads besides its weights: chat template, context length, folders of critic and reward model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import TREE, configured
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate, chat_template
from verl_doctor.toolkit.collectors.model.context import ModelContext, model_context
from verl_doctor.toolkit.collectors.model.other_models import OtherModel, OtherModels, other_models
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

UNSEEN = Unknown("not looked at")
REWARD = {**TREE, "reward": {"reward_model": {"enable": False, "model_path": "/no/reward"}}}


def model(folder: Path, **files: object) -> Path:
    """A model folder: `tokenizer_config={...}` is tokenizer_config.json; a text is the content of a file of that name."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        if isinstance(content, str):
            folder.joinpath(name.replace("__", ".")).write_text(content)
        else:
            folder.joinpath(f"{name}.json").write_text(json.dumps(content))
    return folder


def template(folder: Path, *words: str) -> ChatTemplate | Unknown:
    target = Target(Path("/env/bin/python"), chosen_by="--python", model=folder)
    return chat_template.collect(Machine(environ={}, cwd=folder), target, UNSEEN, *configured(*words), UNSEEN)


def test_folder_without_tokenizer_files_has_no_tokenizer(tmp_path: Path) -> None:
    bare = model(tmp_path / "bare", config={})
    assert template(bare) == ChatTemplate(str(bare), has_tokenizer=False)
    for name in ("vocab.txt", "tokenizer.model", "qwen.tiktoken", "modeling_mine.py"):
        (bare / name).touch()
        assert isinstance(template(bare), Unknown), name
        (bare / name).unlink()
    (bare / "tokenizer.json").touch()
    assert template(bare) == ChatTemplate(str(bare))


def context(folder: Path) -> ModelContext | Unknown:
    target = Target(Path("/env/bin/python"), chosen_by="--python", model=folder)
    return model_context.collect(Machine(environ={}, cwd=folder), target, UNSEEN, UNSEEN)


@pytest.mark.parametrize(
    ("files", "found_in"),
    [
        ({"tokenizer_config": {}}, ""),
        ({"tokenizer_config": {"chat_template": ""}}, ""),
        ({"tokenizer_config": {"chat_template": "{{ x }}"}}, "tokenizer_config.json"),
        ({"tokenizer_config": {}, "chat_template__jinja": "{{ x }}"}, "chat_template.jinja"),
        ({"tokenizer_config": {}, "processor_config": {"chat_template": "{{ x }}"}}, "processor_config.json"),
    ],
)
def test_chat_template_is_searched_where_transformers_does(
    tmp_path: Path, files: dict[str, object], found_in: str
) -> None:
    folder = model(tmp_path / "model", **files)
    assert template(folder) == ChatTemplate(str(folder), str(folder / found_in) if found_in else "")


def test_chat_template_of_the_named_tokenizer_is_used(tmp_path: Path) -> None:
    trained = model(tmp_path / "model", tokenizer_config={"chat_template": "{{ x }}"})
    other = model(tmp_path / "tokenizer", tokenizer_config={})
    found = template(trained, f"+actor_rollout_ref.model.tokenizer_path={other}")
    assert found == ChatTemplate(str(other))


def test_chat_template_in_code_or_an_unreadable_file_is_not_judged(tmp_path: Path) -> None:
    own = model(tmp_path / "own", tokenizer_config={"auto_map": {"AutoTokenizer": "mine.Tokenizer"}})
    assert isinstance(template(own), Absent)
    broken = model(tmp_path / "broken", tokenizer_config__json="{")
    assert isinstance(template(broken), Unknown)


def test_context_length_may_come_from_the_nested_language_model(tmp_path: Path) -> None:
    plain = model(tmp_path / "plain", config={"max_position_embeddings": 4096, "rope_scaling": None})
    assert context(plain) == ModelContext(4096, str(plain / "config.json"))
    scaled = {"max_position_embeddings": 32768, "rope_scaling": {"type": "yarn"}}
    seeing = model(tmp_path / "seeing", config={"text_config": scaled})
    assert context(seeing) == ModelContext(32768, str(seeing / "config.json"), nested=True, scaled=True)
    silent = model(tmp_path / "silent", config={"max_position_embeddings": True})
    assert isinstance(context(silent), Absent)


def test_critic_and_reward_model_paths_are_resolved_as_by_the_job(tmp_path: Path) -> None:
    here = Machine(environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    critic = ("algorithm.adv_estimator=gae", "+critic.model.path='~/critic'")
    missing = OtherModel("critic.model.path", "~/critic", "adv_estimator gae trains a critic", False)
    assert other_models.collect(*configured(*critic), here, Launch(())) == OtherModels((missing,))
    (tmp_path / "critic").mkdir()
    assert other_models.collect(*configured(*critic), here, Launch(())).models[0].exists
    assert other_models.collect(
        *configured("+critic.model.path=/no/critic"), here, Launch(())
    ) == OtherModels(())
    assert other_models.collect(*configured(*critic, "critic.enable=False"), here, Launch(())) == OtherModels(
        ()
    )
    on_the_hub = ("algorithm.adv_estimator=gae", "+critic.model.path=org/critic")
    assert other_models.collect(*configured(*on_the_hub), here, Launch(())) == OtherModels(())
    (reward,) = other_models.collect(
        *configured("reward.reward_model.enable=True", tree=REWARD), here, Launch(())
    ).models
    assert (reward.key, reward.exists) == ("reward.reward_model.model_path", False)


def test_folder_of_an_adapter_has_its_configuration(tmp_path: Path) -> None:
    here = Machine(environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    named = configured("+actor_rollout_ref.model.lora_adapter_path='~/adapter'")
    (tmp_path / "adapter").mkdir()
    launch = Launch(())
    (adapter,) = other_models.collect(*named, here, launch).models
    assert (adapter.exists, adapter.lacks) == (True, "adapter_config.json")
    fetched = Launch((), made=(str(tmp_path / "adapter"),))
    assert not other_models.collect(*named, here, fetched).models[0].lacks
    (tmp_path / "adapter" / "adapter_config.json").touch()
    assert not other_models.collect(*named, here, launch).models[0].lacks


def test_names_of_several_chat_templates(tmp_path: Path) -> None:
    named = [{"name": "chat", "template": "{{ x }}"}, {"name": "rag", "template": "{{ y }}"}]
    folder = model(tmp_path / "model", tokenizer_config={"chat_template": named})
    found = template(folder)
    assert isinstance(found, ChatTemplate)
    assert found.names == ("chat", "rag")
