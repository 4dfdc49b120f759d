"""Which files a loader reads, by their names."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.collectors.model.weight_files import format_of, loaded, missing_shards


@pytest.mark.parametrize(
    ("names", "indexed", "read"),
    [
        (["a.safetensors", "b.bin"], [], {"a.safetensors"}),
        (["a.safetensors", "b.safetensors"], ["b.safetensors"], {"b.safetensors"}),
        (["a.safetensors"], ["gone.safetensors"], {"a.safetensors"}),
        (["a.safetensors", "consolidated.safetensors"], [], {"a.safetensors"}),
        (["consolidated.safetensors", "b.bin"], [], {"consolidated.safetensors"}),
        (["pytorch_model.bin", "training_args.bin", "rng_state_0.pth"], [], {"pytorch_model.bin"}),
        (["config.json"], [], set()),
    ],
)
def test_indexed_files_of_one_format_are_loaded(names: list[str], indexed: list[str], read: set[str]) -> None:
    assert loaded(names, indexed) == read


def test_optimizer_files_are_not_weights() -> None:
    assert format_of("optimizer.pt") is None
    assert format_of("model-optimizer.pth") == "pickle"


def test_missing_shards_follow_from_the_others() -> None:
    there = [
        "model-00002-of-00003.safetensors",
        "other-00001-of-00001.safetensors",
        "model-1-of-3.safetensors",
    ]
    assert missing_shards(there) == ["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"]
