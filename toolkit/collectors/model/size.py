"""How many parameters a model has: counted from the headers of its weight files, without reading a weight."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.facts import Absent, Unknown, collector


@dataclass(frozen=True)
class ModelSize:
    """The number of parameters in the weight files of a folder."""

    folder: str
    parameters: int


@collector()
def model_size(files: ModelFiles) -> ModelSize | Unknown:
    """Add up the tensors of the loaded weights."""
    if not files.of("safetensors"):
        return Absent(f"{files.folder} has no weights in the format safetensors")
    if any(file.ends is None for file in files.loaded):
        return Unknown(f"the sizes of the weights in {files.folder} cannot be read")
    return ModelSize(files.folder, sum(file.parameters for file in files.loaded))
