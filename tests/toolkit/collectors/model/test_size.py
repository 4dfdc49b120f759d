"""Parameters, added up from the headers of the weights that are loaded."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.toolkit.collectors.model.files import ModelFiles, WeightFile
from verl_doctor.toolkit.collectors.model.size import ModelSize, model_size
from verl_doctor.toolkit.facts import Absent, Unknown

SHARD = WeightFile("a.safetensors", "safetensors", 100, parameters=40, ends=100)


def test_parameters_of_loaded_files_are_summed() -> None:
    other = replace(SHARD, name="b.safetensors", parameters=2)
    assert model_size.collect(ModelFiles("/m", (SHARD, other))) == ModelSize("/m", 42)
    indexed = ModelFiles("/m", (SHARD, other), indexed=("b.safetensors",))
    assert model_size.collect(indexed) == ModelSize("/m", 2)


def test_pickles_have_no_headers() -> None:
    found = model_size.collect(ModelFiles("/m", (WeightFile("pytorch_model.bin", "pickle", 100),)))
    assert isinstance(found, Absent)


def test_single_unread_header_leaves_the_sum_unknown() -> None:
    found = model_size.collect(ModelFiles("/m", (SHARD, replace(SHARD, name="b.safetensors", ends=None))))
    assert isinstance(found, Unknown)
    assert not isinstance(found, Absent)
