"""Weight files for the examples of rules about loading."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.collectors.model.files import ModelFiles, WeightFile


def shard(name: str, size: int = 1000, **other: Any) -> WeightFile:
    """A safetensors file that matches its header by default."""
    whole = WeightFile(
        name=name, format="safetensors", size=size, parameters=size // 2, ends=size, kinds={"BF16": size}
    )
    return replace(whole, **other)


def files_of(*files: WeightFile, **other: Any) -> ModelFiles:
    """A folder with these files."""
    return ModelFiles(folder="/models/qwen", files=files, **other)
