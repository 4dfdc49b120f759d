"""Shapes of weights compared with those implied by config.json."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.weight_shapes import WeightShapes, weight_shapes
from verl_doctor.toolkit.facts import Absent

CONFIG = {"model_type": "qwen2", "hidden_size": 64, "vocab_size": 100, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
SHAPES = {
    "model.embed_tokens.weight": (100, 64),
    "model.layers.0.self_attn.q_proj.weight": (64, 64),
    "model.layers.0.self_attn.k_proj.weight": (32, 64),
    "model.layers.0.mlp.gate_proj.weight": (96, 64),
}


def look(folder: Path, *, shards: bool = False, **config: Any) -> WeightShapes | Absent:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    header = {name: {"dtype": "BF16", "shape": shape} for name, shape in SHAPES.items()}
    text = json.dumps(header).encode()
    name = "model-00001-of-00001.safetensors" if shards else "model.safetensors"
    (folder / name).write_bytes(struct.pack("<Q", len(text)) + text)
    if shards:
        index = {"weight_map": dict.fromkeys(SHAPES, name)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = weight_shapes.collect(Model(str(folder), "--model"))
    assert isinstance(found, (WeightShapes, Absent))
    return found


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        ({}, []),
        ({"head_dim": 16}, []),
        ({"head_dim": 32}, ["q_proj", "k_proj"]),
        ({"num_key_value_heads": 4}, ["k_proj"]),
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, ["q_proj", "k_proj"]),
        ({"vocab_size": 200}, ["embed_tokens"]),
        ({"intermediate_size": 192}, ["gate_proj"]),
        ({"hidden_size": None}, []),
    ],
)
def test_mismatched_shapes_are_reported(
    tmp_path: Path, shards: bool, config: dict[str, Any], tensors: list[str]
) -> None:
    found = look(tmp_path, shards=shards, **config)
    assert isinstance(found, WeightShapes)
    assert [mismatch.tensor.split(".")[-2] for mismatch in found.mismatches] == tensors


@pytest.mark.parametrize("config", [{"model_type": "other"}, {"quantization_config": {"bits": 4}}])
def test_unexpected_configurations_are_not_judged(tmp_path: Path, config: dict[str, Any]) -> None:
    assert isinstance(look(tmp_path, **config), Absent)
