"""Parameters, counted from headers."""

from __future__ import annotations

import json
from pathlib import Path

from verl_doctor.toolkit.fact_model import Model
from verl_doctor.toolkit.fact_model_size import ModelSize, model_size
from verl_doctor.toolkit.facts import Absent, Unknown


def weights(path: Path, **shapes: list[int]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    header |= {
        name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


def test_tensors_of_all_files_are_added_up(tmp_path: Path) -> None:
    weights(tmp_path / "model-1.safetensors", a=[10, 20], b=[5])
    weights(tmp_path / "model-2.safetensors", c=[3, 3, 3], scalar=[])
    assert model_size.collect(Model(str(tmp_path), "--model")) == ModelSize(str(tmp_path), 200 + 5 + 27 + 1)


def test_no_weights_and_damaged_ones(tmp_path: Path) -> None:
    assert isinstance(model_size.collect(Model(str(tmp_path), "--model")), Absent)
    for content in (b"", b"\xff" * 16, b"\x02\0\0\0\0\0\0\0{]", b"\x02\0\0\0\0\0\0\0[]"):
        tmp_path.joinpath("model.safetensors").write_bytes(content)
        found = model_size.collect(Model(str(tmp_path), "--model"))
        assert isinstance(found, Unknown)
        assert not isinstance(found, Absent)
