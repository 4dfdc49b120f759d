"""How many parameters a model has: counted from the headers of its weight files, without reading a weight.

https://huggingface.co/docs/safetensors: eight bytes with the length of a JSON header, which has the shape of each tensor.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.fact_model import Model
from verl_doctor.toolkit.facts import Absent, Unknown, collector

_LONGEST_HEADER = 100_000_000  # bytes, as the format has it
_MOST_FILES = 1000


@dataclass(frozen=True)
class ModelSize:
    """The number of parameters in the weight files of a folder."""

    folder: str
    parameters: int


@collector(timeout=10)
def model_size(model: Model) -> ModelSize | Unknown:
    """Add up the tensors of all weight files."""
    files = sorted(Path(model.folder).glob("*.safetensors"))[:_MOST_FILES]
    if not files:
        return Absent(f"{model.folder} has no weights in the format safetensors")
    try:
        return ModelSize(model.folder, sum(map(_parameters, files)))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return Unknown(f"the sizes of the weights in {model.folder} cannot be read")


def _parameters(path: Path) -> int:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError("this is no header")
        header = json.loads(file.read(length))
    return sum(math.prod(tensor["shape"]) for tensor in header.values() if "shape" in tensor)
