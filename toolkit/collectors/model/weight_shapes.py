"""Shapes in the weights' headers and those config.json implies, for families with plain layer names."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.model.model import BadFile, Model, read_json
from verl_doctor.toolkit.facts import Absent, Unknown, collector

FAMILIES = frozenset({"llama", "qwen2", "qwen3", "mistral"})
"""Values of model_type whose modules have the names of their weights."""

_INDEX = "model.safetensors.index.json"
_ONE = "model.safetensors"
_LONGEST = 30_000_000  # bytes of a header
_LAYER = "model.layers.0."
_PLAIN = frozenset({"BF16", "F16", "F32"})


@dataclass(frozen=True)
class Mismatch:
    """A tensor, its shape in the weights, and the shape that config.json implies.

    With them come the entries of config.json that determine the implied shape.
    """

    tensor: str
    found: tuple[int, ...]
    implied: tuple[int, ...]
    entries: tuple[str, ...]


@dataclass(frozen=True)
class WeightShapes:
    """The tensors of the model in `folder` with a different shape."""

    folder: str
    mismatches: tuple[Mismatch, ...] = ()


@collector(kept=True)
def weight_shapes(model: Model) -> WeightShapes | Unknown:
    """Compare the tensors of the first layer and of the vocabulary."""
    folder = Path(model.folder)
    config = read_json(folder / "config.json")
    if isinstance(config, BadFile):
        return Absent(f"{folder} has no readable config.json")
    if config.get("model_type") not in FAMILIES or config.get("quantization_config"):
        return Absent("the shapes of this model's weights do not follow from config.json alone")
    implied = dict(_implied(config))
    found = dict(_found(folder, implied))
    return WeightShapes(
        str(folder),
        tuple(
            Mismatch(name, shape, implied[name][0], implied[name][1])
            for name, shape in found.items()
            if shape != implied[name][0]
        ),
    )


def _implied(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[tuple[int, ...], tuple[str, ...]]]]:
    numbers: list[int] = []
    for name in (
        "hidden_size",
        "vocab_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
    ):
        value = config.get(name, config.get("num_attention_heads"))
        if type(value) is not int or value < 1:
            return
        numbers.append(value)
    hidden, vocabulary, inner, heads, keys = numbers
    given = config.get("head_dim")
    width = given if type(given) is int and given > 0 else hidden // heads
    of_heads = ("num_attention_heads", "hidden_size")
    yield "model.embed_tokens.weight", ((vocabulary, hidden), ("vocab_size", "hidden_size"))
    yield "lm_head.weight", ((vocabulary, hidden), ("vocab_size", "hidden_size"))
    yield f"{_LAYER}self_attn.q_proj.weight", ((heads * width, hidden), of_heads)
    yield f"{_LAYER}self_attn.k_proj.weight", ((keys * width, hidden), ("num_key_value_heads", *of_heads))
    yield f"{_LAYER}mlp.gate_proj.weight", ((inner, hidden), ("intermediate_size", "hidden_size"))


def _found(folder: Path, wanted: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    index = read_json(folder / _INDEX)
    places = index.get("weight_map", {}) if not isinstance(index, BadFile) else dict.fromkeys(wanted, _ONE)
    for file in dict.fromkeys(places[name] for name in wanted if name in places):
        header = _header(folder / str(file))
        for name in wanted:
            entry = header.get(name)
            if places.get(name) == file and isinstance(entry, dict) and entry.get("dtype") in _PLAIN:
                yield name, tuple(entry["shape"])


def tensors(folder: Path) -> frozenset[str]:
    """Return the names of all tensors of a model in safetensors; none where they cannot be read."""
    index = read_json(folder / _INDEX)
    places = index.get("weight_map", {}) if not isinstance(index, BadFile) else _header(folder / _ONE)
    return frozenset(map(str, places)) - {"__metadata__"} if isinstance(places, dict) else frozenset()


def _header(path: Path) -> Mapping[str, Any]:
    try:
        if not os.path.isfile(path):
            return {}
        with path.open("rb") as file:
            start = file.read(8)
            size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            header = json.loads(file.read(size)) if 0 < size < _LONGEST else {}
    except (OSError, ValueError):
        return {}
    return header if isinstance(header, dict) else {}
