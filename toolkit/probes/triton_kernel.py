"""Compiles and runs one Triton kernel, in a private cache.

Runs under the target's interpreter, which imports torch and triton.

Called with a token. Known results are printed before each step that may hang or crash. Triton reads a
kernel's source from its file, so this script writes one.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from typing import Any

SIZE = 1024
KERNEL = f"""
import triton
import triton.language as tl

@triton.jit
def add(x, y, out):
    at = tl.arange(0, {SIZE})
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))
"""


def main(token: str) -> None:
    """Import, compile, run, compare."""
    report: dict[str, Any] = {"seconds": {}}
    started = time.monotonic()

    def ended(step: str, following: str, **more: Any) -> None:
        nonlocal started
        now = time.monotonic()
        report["seconds"][step] = round(now - started, 3)
        report.update(more, step=following)
        started = now
        print(f"\n{token}{json.dumps(report)}", flush=True)

    ended("start", "import torch")
    torch = importlib.import_module("torch")
    ended("import torch", "import triton", device=torch.cuda.get_device_name(0))
    with open("kernel_of_verl_doctor.py", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(KERNEL)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    add = importlib.import_module("kernel_of_verl_doctor").add
    ended("import triton", "compile")
    x = torch.arange(SIZE, device="cuda", dtype=torch.float32)
    out = torch.empty_like(x)
    add[(1,)](x, x, out)
    torch.cuda.synchronize()
    ended("compile", "run")
    add[(1,)](x, x, out)
    torch.cuda.synchronize()
    ended("run", "", right=bool((out == 2 * x).all().item()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as private:
        os.chdir(private)
        os.environ["TRITON_CACHE_DIR"] = os.path.join(private, "cache")  # noqa: PTH118
        main(sys.argv[1])
