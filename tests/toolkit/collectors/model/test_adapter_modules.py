"""Modules that an adapter would be given, by the names of the weights."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.checks.shared.configuration import composed
from verl_doctor.toolkit.collectors.model.adapter_modules import AdapterModules, adapter_modules
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.facts import Absent

TENSORS = ("model.embed_tokens.weight", "model.norm.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.bias", "model.layers.0.mlp.up_proj.weight")  # fmt: skip


def look(
    folder: Path,
    *,
    model_type: str = "qwen2",
    strategy: str = "fsdp2",
    tensors: Sequence[str] = TENSORS,
    program: str = "main_ppo",
    **settings: Any,
) -> AdapterModules | Absent:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    text = json.dumps({"__metadata__": {}} | {name: {"dtype": "BF16"} for name in tensors}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    job = {
        "actor": {"strategy": strategy},
        "model": {"lora_rank": 8, "target_modules": "all-linear", **settings},
    }
    configuration = replace(composed({"actor_rollout_ref": job}), program=program)
    found = adapter_modules.collect(Model(str(folder), "--model"), configuration)
    assert isinstance(found, (AdapterModules, Absent))
    return found


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        ({}, ""),
        ({"target_modules": ["q_proj"]}, ""),
        ({"target_modules": ["self_attn.q_proj"]}, ""),
        ({"target_modules": ["lm_head"]}, ""),
        ({"target_modules": ["other", "up_proj"]}, ""),
        ({"target_modules": r".*\.(q|k)_proj"}, ""),
        ({"target_modules": "q_proj"}, "target_modules"),
        ({"target_modules": ["q_proj v_proj"]}, "target_modules"),
        ({"target_modules": ["proj"]}, "target_modules"),
        ({"target_modules": "all_linear"}, "target_modules"),
        ({"exclude_modules": ".*"}, "exclude_modules"),
        ({"exclude_modules": ["q_proj", "up_proj"]}, "exclude_modules"),
        ({"exclude_modules": ["q_proj"]}, ""),
        ({"exclude_modules": "q_proj"}, ""),
        ({"target_modules": ["q_proj"], "exclude_modules": ["q_proj"]}, "exclude_modules"),
    ],
)
def test_what_matches(tmp_path: Path, settings: dict[str, Any], lacking: str) -> None:
    found = look(tmp_path, **settings)
    assert isinstance(found, AdapterModules)
    assert found.lacking == lacking


@pytest.mark.parametrize(
    "settings",
    [
        {"lora_rank": 0, "target_modules": ["none"]},
        {"lora_adapter_path": "/adapters/first", "target_modules": ["none"]},
        {"target_modules": "("},
        {"target_modules": ["${names}"]},
        {"target_modules": ["none"], "model_type": "mixtral"},
        {"target_modules": ["none"], "strategy": "megatron"},
        {"target_modules": ["none"], "external_lib": "mine"},
        {"target_modules": ["none"], "target_parameters": ["q_proj.weight"]},
        {"target_modules": ["none"], "program": "/env/verl/trainer/main_generation_server.py"},
    ],
)
def test_nothing_is_claimed_that_is_not_known(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert isinstance(look(tmp_path, **settings), Absent)


def test_weights_without_the_prefix_that_their_modules_get_are_not_judged(tmp_path: Path) -> None:
    """As embedding models are stored: AutoModelForCausalLM adds it, and a pattern has to match it."""
    stored = [name.removeprefix("model.") for name in TENSORS]
    pattern = r"model\.layers\.\d+\.self_attn\.q_proj"
    assert isinstance(look(tmp_path, tensors=stored, target_modules=pattern), Absent)
