"""Lengths of a job's prompts, estimated from bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.environments import interpreter
from support.miniatures.variant_verl import composed

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.commands.smoke import longest_prompt
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import prompts

CHAT = [{"role": "user", "content": "héllo"}]
TRAIN = DataFile("/d/train.parquet", "train", "data.train_files", "parquet")


@pytest.mark.parametrize(
    ("prompt", "size"),
    [
        (CHAT, 10),
        ([*CHAT, *CHAT], 20),
        ("abc", 3),
        ([{"role": "user", "content": [{"image": 1}]}], None),
        (None, None),
        ([1], None),
    ],
)
def test_prompt_size_in_bytes(prompt: Any, size: int | None) -> None:
    assert prompts.size(prompt) == size


def most(
    monkeypatch: pytest.MonkeyPatch,
    described: Any,
    *words: str,
    file: DataFile = TRAIN,
    columns: tuple[str, ...] = ("prompt",),
) -> int | None:
    monkeypatch.setattr(longest_prompt, "run_probe", lambda *_, **__: (SimpleNamespace(code=0), described))
    table = Table(file, 2, tuple(Column(name, "string") for name in columns))
    known: dict[type, Any] = {
        DataFiles: DataFiles((file,)),
        DataTables: DataTables((table,)),
        Interpreter: interpreter(),
    }
    there = composed("+data.prompt_key=prompt", "+data.image_key=images", *words)
    return longest_prompt.most_tokens(Machine(), Collection((), known), there)


def test_longest_prompt_of_all_files_plus_template_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    described = [{"bytes": 700, "messages": 1}, {"bytes": 650, "messages": 10}]
    assert most(monkeypatch, described) == 650 + 160 + 512


@pytest.mark.parametrize("described", [None, "nonsense", [None], [{"bytes": 1, "messages": 1}, None]])
def test_incomplete_file_description_gives_no_length(monkeypatch: pytest.MonkeyPatch, described: Any) -> None:
    assert most(monkeypatch, described) is None


def test_prompts_with_other_content_give_no_length(monkeypatch: pytest.MonkeyPatch) -> None:
    described = [{"bytes": 1, "messages": 1}]
    assert most(monkeypatch, described) is not None
    assert most(monkeypatch, described, columns=("prompt", "images")) is None
    assert most(monkeypatch, described, "+data.custom_cls.path=mine.py") is None
    assert (
        most(monkeypatch, described, file=DataFile("/d/a.json", "train", "data.train_files", "json")) is None
    )
    assert (
        most(monkeypatch, described, file=DataFile("/d/a.parquet", "train", "", "parquet", "missing")) is None
    )
