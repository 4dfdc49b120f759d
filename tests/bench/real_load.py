"""Loads a model's weights as vLLM does, in each of its strategies, and prints the seconds as JSON. Runs in an environment with vLLM.

    ENVIRONMENT/bin/python tests/bench/real_load.py FOLDER ROUNDS STRATEGY...

Each tensor is copied into one buffer, as it would be on its way to a GPU. "warm" is vLLM's default from memory; before each of the others the files are taken out of the page cache.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]
    from vllm.model_executor.model_loader.weight_utils import (  # type: ignore[import-not-found,unused-ignore]
        safetensors_weights_iterator,
    )

    folder, rounds, *strategies = sys.argv[1:]
    files = sorted(map(str, Path(folder).glob("*.safetensors")))
    buffer = torch.empty(64 << 20, dtype=torch.bfloat16)
    seconds: dict[str, list[float]] = {strategy: [] for strategy in strategies}
    for _ in range(int(rounds)):
        for strategy in strategies:
            if strategy != "warm":
                take_out(files)
            begun = time.perf_counter()
            asked = None if strategy == "warm" else strategy
            for _, weight in safetensors_weights_iterator(files, False, asked):
                buffer[: weight.numel()].copy_(weight.flatten())
            seconds[strategy].append(time.perf_counter() - begun)
    print(json.dumps(seconds))


def take_out(files: list[str]) -> None:
    for path in files:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


if __name__ == "__main__":
    main()
