"""What a chat template makes of prompts: a refusal of all, or the fewest tokens that each has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.environments import interpreter

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.model import rendered_prompts
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_files import DataFile
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import rendered

PLAIN = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
JOINS = "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}{% endfor %}"
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
ALTERNATE = "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}"
USER, SYSTEM = {"role": "user", "content": "two and two"}, {"role": "system", "content": "be good"}
VOCABULARY = dict.fromkeys("abcdefghijklmnopqrstuvwxyz<>Ġ", 0) | {"two": 0, "Ġand": 0}


def tokenizer(**parts: Any) -> dict[str, Any]:
    return {
        "model": {"type": "BPE", "vocab": VOCABULARY},
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated"}, {"type": "ByteLevel"}]},
        "added_tokens": [{"content": "<user>", "lstrip": False, "rstrip": False}],
        **parts,
    }  # fmt: skip


def examined(tmp_path: Path, rows: list[Any], template: str, limit: int = 0, *, retries: bool = True, **parts: Any) -> Any:  # fmt: skip
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(tokenizer(**parts)), "utf-8")
    spec = {"template": template, "names": {}, "tokenizer": str(file), "limit": limit, "column": "prompt", "retries": retries, "files": []}  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rendered, "prompts", lambda *_: iter(rows))
        return rendered.examined(spec)


@pytest.mark.parametrize(
    ("rows", "template", "retries", "message"),
    [
        ([[SYSTEM, USER]], NO_SYSTEM + JOINS, True, "no system role"),
        ([[SYSTEM, USER]], NO_SYSTEM + PLAIN, True, ""),  # verl's second attempt succeeds
        ([[SYSTEM, USER]], NO_SYSTEM + PLAIN, False, "no system role"),
        ([[SYSTEM, USER]], ALTERNATE + PLAIN, True, ""),  # as does this one: the roles then alternate
        ([[USER, USER]], ALTERNATE + PLAIN, True, "roles must alternate"),
        ([[SYSTEM, USER], [USER]], NO_SYSTEM + JOINS, True, ""),
        ([[USER]], NO_SYSTEM + JOINS, True, ""),
        ([[SYSTEM, USER]], "{{ messages[0].content.nothing.more }}", True, None),
    ],
)
def test_template_that_refuses_all_prompts(tmp_path: Path, rows: list[Any], template: str, message: str | None, *, retries: bool) -> None:  # fmt: skip
    if message is None:
        with pytest.raises(Exception, match="has no attribute"):
            examined(tmp_path, rows, template, retries=retries)
        return
    assert examined(tmp_path, rows, template, retries=retries).get("refused", "") == message


@pytest.mark.parametrize(
    ("rows", "limit", "parts", "shortest"),
    [
        ([[USER]], 8, {}, 8),  # <user> two Ġand Ġ two < a >
        ([[USER]], 9, {}, None),
        ([[USER], [USER, USER]], 8, {}, 8),
        ([[{"role": "user", "content": "zwölf"}]], 1, {}, None),
        ([[{"role": "user", "content": "TWO"}]], 1, {}, None),
        ([[USER]], 1, {"normalizer": {"type": "Lowercase"}}, None),
        ([[USER]], 1, {"pre_tokenizer": {"type": "WhitespaceSplit"}}, None),
        ([[USER]], 1, {"added_tokens": [{"content": "<user>", "rstrip": True}]}, None),
        ([[USER]], 1, {"model": {"type": "Unigram", "vocab": []}}, None),
    ],
)
def test_fewest_tokens_of_all_prompts(tmp_path: Path, rows: list[Any], limit: int, parts: Any, shortest: int | None) -> None:  # fmt: skip
    assert examined(tmp_path, rows, PLAIN, limit, **parts).get("shortest") == shortest


def test_rows_beyond_the_first_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "MOST_ROWS", 2)
    assert examined(tmp_path, [[SYSTEM]] * 3, NO_SYSTEM + JOINS) == {"rows": 2, "refused": "no system role", "whole": False}  # fmt: skip
    assert examined(tmp_path, [[USER]] * 3, PLAIN, 8) == {}


TEMPLATE = NO_SYSTEM + JOINS
CHAT = Column("prompt", "list<struct<role: string, content: string>>")
MODEL = Model("/models/x", "--model", has_processor=False)
DEMANDS = DataDemands("rl_dataset.py", ("parquet",), "prompt", "data_source", "", 8, "", media=("images",))


def rendered_by(monkeypatch: pytest.MonkeyPatch, folder: Path, answer: Any, *words: str, template: str = TEMPLATE, columns: tuple[Column, ...] = (CHAT,), model: Model = MODEL) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """The fact, and what the probe was given."""
    spec: dict[str, Any] = {}

    def run(*arguments: Any, **_: Any) -> Any:
        spec.update(json.loads(arguments[-1]))
        return answer if isinstance(answer, Unknown) else ("", answer)

    monkeypatch.setattr(rendered_prompts, "run_probe", run)
    config = {
        "chat_template": template,
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "pad_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (folder / "tokenizer.json").touch()
    table = Table(DataFile("/d/train.parquet", "train", "data.train_files", "parquet"), 2, columns)
    found = rendered_prompts.rendered_prompts.collect(
        Machine(), *configured(*words), ChatTemplate(str(folder), str(folder / "tokenizer_config.json")), DataTables((table,)), DEMANDS, model, interpreter()
    )  # fmt: skip
    return found, spec


@pytest.mark.parametrize(
    ("words", "limit", "retries"),
    [
        ((), 0, True),
        (("++data.max_prompt_length=16", "++data.filter_overlong_prompts=True"), 17, False),
        (("++data.max_prompt_length=16",), 0, True),
        (("++data.max_prompt_length=1024", "++data.filter_overlong_prompts=True"), 0, False),
        (("++actor_rollout_ref.rollout.max_model_len=32",), 32, True),
    ],
)
def test_what_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], limit: int, *, retries: bool) -> None:  # fmt: skip
    answer = {"rows": 2, "refused": "no system role", "whole": True}
    found, spec = rendered_by(monkeypatch, tmp_path, answer, *words)
    assert found == rendered_prompts.RenderedPrompts(2, refused="no system role")
    assert (spec["limit"], spec["retries"], spec["files"]) == (limit, retries, ["/d/train.parquet"])
    assert (spec["template"], spec["names"]) == (TEMPLATE, {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ((), {"template": JOINS}),
        ((), {"columns": (Column("prompt", "string"),)}),
        ((), {"columns": (CHAT, Column("images", "list<string>"))}),
        ((), {"model": Model("/models/x", "--model")}),
        ((), {"model": Model("/models/x", "--model", own_code=True, has_processor=False)}),
        (("++data.apply_chat_template_kwargs={enable_thinking: false}",), {}),
        (("++actor_rollout_ref.rollout.multi_turn.tool_config_path=tools.yaml",), {}),
    ],
)
def test_what_may_be_rendered_otherwise_is_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], changed: dict[str, Any]) -> None:  # fmt: skip
    found, spec = rendered_by(monkeypatch, tmp_path, {}, *words, **changed)
    assert isinstance(found, Absent)
    assert not spec


@pytest.mark.parametrize(("answer", "kind"), [({}, Absent), (Unknown("no answer"), Unknown)])
def test_prompts_that_the_template_accepts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Any, kind: type[Unknown]) -> None:  # fmt: skip
    found, _ = rendered_by(monkeypatch, tmp_path, answer)
    assert type(found) is kind


ANSWER = {"role": "assistant", "content": "four"}
ASKED = "{% set seen = namespace(user=false) %}{% for m in messages %}{% if m['role'] == 'user' %}{% set seen.user = true %}{% endif %}{% endfor %}{% if not seen.user %}{{ raise_exception('no question') }}{% endif %}"
FIRST = "{% for m in messages %}{% if m['role'] == 'system' and not loop.first %}{{ raise_exception('system first') }}{% endif %}{% endfor %}"


@pytest.mark.parametrize(
    ("rows", "template", "retries", "answer"),
    [
        ([[USER, ANSWER]], PLAIN, True, {}),
        ([[USER, ANSWER]], ALTERNATE + PLAIN, True, {"rows": 1, "refused": "roles must alternate", "probed": True}),
        ([[SYSTEM, USER, ANSWER]] * 2, ASKED + FIRST + PLAIN, True, {"rows": 2, "refused": "no question"}),
        ([[SYSTEM, USER, ANSWER], [USER, ANSWER]], ASKED + FIRST + PLAIN, True, {}),
        ([[USER, ANSWER]], ASKED + PLAIN, True, {}),  # verl puts an empty message of a user in front
        ([[USER, ANSWER]], ASKED + PLAIN, False, {"rows": 1, "refused": "no question"}),
    ],
)  # fmt: skip
def test_conversations_that_are_rendered_message_by_message(tmp_path: Path, rows: list[Any], template: str, answer: Any, *, retries: bool) -> None:  # fmt: skip
    spec = {
        "template": template,
        "names": {},
        "column": "messages",
        "retries": retries,
        "files": [],
        "alone": True,
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rendered, "prompts", lambda *_: iter(rows))
        assert rendered.examined(spec) == answer


NEW = b"from verl.utils.tokenizer.chat_template import apply_chat_template\nself.generation_prompt = extract_system_prompt_and_generation(\n"
OLD = b"self.generation_prompt = extract_system_prompt_and_generation(self.tokenizer)\n"


@pytest.mark.parametrize(
    ("source", "words", "columns", "retries"),
    [
        (NEW, (), (), True),
        (OLD, (), (), False),
        (b"", (), (), None),
        (NEW, ("++data.custom_cls.path=mine.py",), (), None),
        (NEW, ("++data.apply_chat_template_kwargs={enable_thinking: false}",), (), None),
        (NEW, (), (Column("tools", "string"),), None),
    ],
)
def test_which_conversations_are_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: bytes, words: tuple[str, ...], columns: tuple[Column, ...], *, retries: bool | None) -> None:  # fmt: skip
    given: dict[str, Any] = {}

    def run(*arguments: Any, **_: Any) -> Any:
        given.update(json.loads(arguments[-1]))
        return "", {"rows": 1, "refused": "roles must alternate", "probed": True}

    monkeypatch.setattr(rendered_prompts, "run_probe", run)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": ALTERNATE + PLAIN}), "utf-8")
    dataset = tmp_path / "verl/utils/dataset/multiturn_sft_dataset.py"
    dataset.parent.mkdir(parents=True)
    dataset.write_bytes(source)
    talks = Column("messages", "list<struct<role: string, content: string>>")
    table = Table(DataFile("/d/train.parquet", "train", "data.train_files", "parquet"), 2, (talks, *columns))
    (job,) = configured("+data.messages_key=messages", *words)
    verl = VerlTrees(Tree(str(tmp_path / "verl"), "verl", "0.9.1", "site-packages"), "it is the only one")
    found = rendered_prompts.refused_talks.collect(
        Machine(), replace(job, program="/env/verl/trainer/sft_trainer.py"), ChatTemplate(str(tmp_path), str(tmp_path / "tokenizer_config.json")), DataTables((table,)), verl, MODEL, interpreter()
    )  # fmt: skip
    assert given.get("retries") is retries
    assert isinstance(found, Absent if retries is None else rendered_prompts.RefusedTalks)
