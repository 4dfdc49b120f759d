"""Imports modules one after the other. Runs under the target's interpreter.

Called with "cuda" or "cpu" and the modules' names. For torch on "cuda" it also counts the GPUs, which
initialises CUDA. It exits without cleanup: what torch and vLLM do at process exit takes a second, and is not
part of an import. It collects no garbage: what an import creates stays until the end, and going through it
again and again takes a fifth of the time.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time

from verl_doctor.toolkit.probes.smoke_steps import emit, step


def main(device: str, *modules: str) -> None:
    """Import them. The first failure ends the child with its traceback."""
    gc.disable()
    for name in modules:
        with step(f"import {name}"):
            module = importlib.import_module(name)
        if name == "torch" and device == "cuda":
            with step("start CUDA"):
                module.cuda.init()
                emit(gpus=module.cuda.device_count())
    emit(cpu=time.process_time())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
