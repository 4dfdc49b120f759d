"""Random weights that are the same everywhere, generated from the tensors' names and exact in bfloat16."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, tensors: Mapping[str, tuple[int, ...]]) -> None:
    """Write tensors of these sizes in the safetensors format. Raises OSError.

    https://github.com/huggingface/safetensors#format: the length of a header, the header, the numbers.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in sorted(tensors):
        size = 2 * math.prod(tensors[name])
        header[name] = {"dtype": "BF16", "shape": list(tensors[name]), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(_numbers(name, tensors[name]))


def _numbers(name: str, sizes: tuple[int, ...]) -> bytes:
    """Return a tensor's numbers: ones for the scale of a norm, zeros for a bias, otherwise random ones."""
    count = math.prod(sizes)
    if len(sizes) == 1:
        return _bfloat16(0.0 if name.endswith("bias") else 1.0) * count
    drawn = random.Random(name).randbytes(count)  # noqa: S311 - nothing secret
    found = bytearray(2 * count)
    found[0::2] = drawn.translate(_LOWER)
    found[1::2] = drawn.translate(_UPPER)
    return bytes(found)


def _bfloat16(number: float) -> bytes:
    """Return the two bytes of a number that bfloat16 represents exactly: the upper half of a float."""
    return struct.pack("<f", number)[2:]


# A signed byte (-128 to 127) stands for that many 4096ths: a standard deviation of 0.018, similar to real
# models.
_SMALL = [_bfloat16((byte - 256 * (byte > 127)) / 4096) for byte in range(256)]
_LOWER, _UPPER = bytes(pair[0] for pair in _SMALL), bytes(pair[1] for pair in _SMALL)
