"""Runs one tensor operation on the CPU or on every GPU that the job sees.

Runs under the target's interpreter.
"""

from __future__ import annotations

import importlib
import sys

from verl_doctor.toolkit.probes.smoke_steps import emit, step

SIZE = 256


def main(kind: str) -> None:
    """Multiply two matrices of ones on each device: all numbers of the product equal their size."""
    torch = importlib.import_module("torch")
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if kind == "cuda" else ["cpu"]
    if not names:
        torch.cuda.init()
        raise RuntimeError("torch detects no GPU, and gives no reason")
    for name in names:
        with step(f"multiply on {name}"):
            ones = torch.ones(SIZE, SIZE, device=name, dtype=torch.bfloat16)
            product = (ones @ ones).float().cpu()
            if not bool((product == SIZE).all()):
                raise RuntimeError(
                    f"it computes wrong results: {product.min()} to {product.max()} instead of {SIZE}"
                )
        if kind == "cuda":
            emit(device=name, called=torch.cuda.get_device_name(name))


if __name__ == "__main__":
    main(sys.argv[1])
