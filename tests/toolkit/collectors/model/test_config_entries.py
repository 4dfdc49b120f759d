"""Entries of config.json, judged by sources that have the shapes of transformers 4 and 5 and of verl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.model.config_entries import ConfigEntries, config_entries
from verl_doctor.toolkit.collectors.model.model import read_model
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.target import Target

_PARTS = {
    "models/auto/configuration_auto.py": (
        'NAMES = [("qwen", "QwenConfig"), ("old", "OldConfig")]\n'
        'raise ValueError(f"Unrecognized model. Should have a `model_type` key in its config.json.")\n'
    ),
    "configuration_utils.py": (
        'ALLOWED_LAYER_TYPES = ("full_attention", "sliding_attention")\n'
        "from .modeling_rope_utils import Mixin\n"
        "class PreTrainedConfig(Mixin):\n"
        "    kind: ClassVar[str] = ''\n"
        "    architectures: list[str] | None = None\n"
        "    def validate_layer_type(self): ...\n"
    ),
    "modeling_rope_utils.py": (
        'ROPE_INIT_FUNCTIONS = {"linear": f, "yarn": g}\n'
        "class Mixin:\n"
        "    def _validate_yarn_rope_parameters(self, rope_parameters):\n"
        '        required_keys = {"rope_type", "factor", "original_max_position_embeddings"}\n'
        "    def _validate_yarn_parameters(config):\n"
        '        required_keys = {"rope_type", "factor"}\n'
    ),
    "activations.py": 'ACT2CLS = {"gelu": A, "silu": B}\n',
    "models/qwen/configuration_qwen.py": (
        "from ...configuration_utils import PreTrainedConfig\n"
        "@strict\n"
        "class QwenConfig(PreTrainedConfig):\n"
        "    vocab_size: int = 1000\n"
        "    hidden_size: int = 8\n"
        "    num_hidden_layers: int = 2\n"
        "    num_attention_heads: int = 2\n"
        "    eps: float = 0.1\n"
        "    eos_token_id: int | list[int] | None = None\n"
        "    hidden_act: str = 'silu'\n"
        "    rope_parameters: RopeParameters | dict | None = None\n"
        "    layer_types: list[str] | None = None\n"
        "    def __post_init__(self, **kwargs):\n"
        "        if self.layer_types is None:\n"
        "            self.layer_types = ['full_attention'] * self.num_hidden_layers\n"
        "    def validate_architecture(self):\n"
        "        if self.hidden_size % self.num_attention_heads != 0:\n"
        "            raise ValueError('not a multiple')\n"
    ),
    "models/qwen/modeling_qwen.py": "a = ACT2FN[config.hidden_act]\nf = ROPE_INIT_FUNCTIONS[self.rope_type]\n",
    "models/old/configuration_old.py": (
        "class OldConfig(PretrainedConfig):\n"
        "    def __init__(self, vocab_size=1, layer_types=None, num_hidden_layers=2, rope_scaling=None, **kwargs):\n"
        "        self.vocab_size = vocab_size\n"
        "        self.layer_types = layer_types\n"
        "        rope_config_validation(self)\n"
        "        layer_type_validation(self.layer_types)\n"
    ),
    "models/old/modeling_old.py": "f = ROPE_INIT_FUNCTIONS[self.rope_type]\n",
}
_VERL = "assert self.architectures is not None and len(self.architectures) == 1, 'one'\n"


def judged(folder: Path, **entries: Any) -> ConfigEntries | Unknown:
    for name, text in _PARTS.items():
        path = folder / "transformers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "transformers" / "__init__.py").touch()
    (folder / "verl/workers/config").mkdir(parents=True)
    (folder / "verl/workers/config/model.py").write_text(_VERL)
    model = folder / "model"
    model.mkdir()
    config = {"model_type": "qwen", "architectures": ["Qwen"], "eps": 0.1, **entries}
    (model / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "absent"}))
    target = Target(
        Path("/env/bin/python"), "--python", libraries=(("transformers", folder / "transformers"),)
    )
    verl = VerlTrees(Tree(str(folder / "verl"), "verl", "0.9.1", "--verl"), "it was named")
    nothing = Unknown("not read")
    return config_entries.collect(read_model(model, "--model"), target, nothing, verl, nothing)


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ({}, []),
        ({"eps": 1}, ["eps"]),
        ({"vocab_size": "1000"}, ["vocab_size"]),
        ({"vocab_size": True}, ["vocab_size"]),
        ({"vocab_size": None}, ["vocab_size"]),
        ({"eos_token_id": [1, 2]}, []),
        ({"eos_token_id": [1, "a"]}, ["eos_token_id"]),
        ({"of_nobody": "x", "kind": 3}, []),
        ({"hidden_act": "silu2"}, ["hidden_act"]),
        ({"layer_types": ["full_attention", "sliding_attention"]}, []),
        ({"layer_types": ["full_attention"]}, ["layer_types"]),
        ({"layer_types": ["full_attention"] * 3, "num_hidden_layers": 3}, []),
        ({"layer_types": ["full", "full"]}, ["layer_types"]),
        ({"num_attention_heads": 3}, ["hidden_size"]),
        ({"rope_scaling": {"rope_type": "yarnn", "factor": 2.0}}, ["rope_scaling.rope_type"]),
        ({"rope_parameters": {"type": "yarn"}}, ["rope_parameters.factor"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, []),
        ({"rope_scaling": {"rope_type": "default"}}, []),
        ({"architectures": []}, ["architectures"]),
        ({"architectures": "absent"}, ["architectures"]),
        ({"architectures": "Qwen"}, ["architectures"]),
        ({"model_type": "absent"}, ["model_type"]),
        ({"model_type": "old", "vocab_size": "1"}, []),
        ({"model_type": "old", "layer_types": ["full_attention"]}, []),
        ({"model_type": "old", "layer_types": ["full"]}, ["layer_types"]),
        ({"model_type": "old", "rope_scaling": {"rope_type": "yarn"}}, ["rope_scaling.factor"]),
    ],
)
def test_rejected_entries_are_reported(entries: dict[str, Any], names: list[str], tmp_path: Path) -> None:
    found = judged(tmp_path, **entries)
    assert isinstance(found, ConfigEntries)
    assert [bad.name for bad in found.bad] == names


def test_nearest_accepted_value_is_suggested(tmp_path: Path) -> None:
    found = judged(tmp_path, hidden_act="silu2")
    assert isinstance(found, ConfigEntries)
    assert [(bad.nearest, bad.read_from.endswith("activations.py:1")) for bad in found.bad] == [
        ("silu", True)
    ]


def test_model_with_custom_code_is_not_judged(tmp_path: Path) -> None:
    assert isinstance(judged(tmp_path, auto_map={"AutoConfig": "a.B"}, eps=1), Absent)
