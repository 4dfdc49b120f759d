"""Loads a model's weights as vLLM does, in each of its strategies, and prints the seconds as JSON. Runs in an environment with vLLM.

    ENVIRONMENT/bin/python tests/bench/real_load.py FOLDER STRATEGY...

For each line that it hears it loads once in every strategy, so that its time can be set beside another one's of the same moment.
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

    folder, *strategies = sys.argv[1:]
    files = sorted(map(str, Path(folder).glob("*.safetensors")))
    buffer = torch.empty(64 << 20, dtype=torch.bfloat16)
    print("ready", flush=True)
    for _ in sys.stdin:
        seconds = {}
        for strategy in strategies:
            if strategy != "warm":
                take_out(files)
            begun = time.perf_counter()
            asked = None if strategy == "warm" else strategy
            for _, weight in safetensors_weights_iterator(files, False, asked):
                buffer[: weight.numel()].copy_(weight.flatten())
            seconds[strategy] = time.perf_counter() - begun
        print(json.dumps(seconds), flush=True)


def take_out(files: list[str]) -> None:
    for path in files:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


if __name__ == "__main__":
    main()
