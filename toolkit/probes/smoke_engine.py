"""Makes vLLM load a model, generate, and on GPUs sleep and wake up. Runs under the target's interpreter.

Called with the model's folder, "cuda" or "cpu", and further engine arguments as JSON. CUDA is not initialised
in this process: vLLM would then start its engine differently from a job.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from typing import Any

from verl_doctor.toolkit.probes.smoke_steps import emit, step

TOKENS = 16
PROMPTS = ["1 + 1 =", "The capital of France is"]


def main(model: str, device: str, more: str) -> None:
    """Run step by step. A failure ends the child with its traceback."""
    with step("import vllm"):
        vllm = importlib.import_module("vllm")
        engine_class, sampling = (
            vllm.LLM,
            vllm.SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True),
        )
    asleep = {"enable_sleep_mode": True} if device == "cuda" else {}
    before = used(device)
    with step("load the model"):
        engine = engine_class(model=model, **asleep, **json.loads(more))
    generate(engine, sampling, "generate")
    if device != "cuda":
        emit(left_out="sleep and wake: only memory of GPUs is released")
        return
    awake = used(device)
    with step("sleep"):
        engine.sleep(level=1)
    asleep_now = used(device)
    if before is None or awake is None or asleep_now is None:
        emit(left_out="how much memory sleep releases: NVML does not report it here")
    else:
        emit(took=awake - before, given_back=awake - asleep_now)
    with step("wake"):
        engine.wake_up()
    generate(engine, sampling, "generate again")


def generate(engine: Any, sampling: Any, name: str) -> None:
    """Check that each prompt yields as many tokens as requested."""
    with step(name):
        answers = engine.generate(PROMPTS, sampling, use_tqdm=False)
        lengths = [len(answer.outputs[0].token_ids) for answer in answers]
        if lengths != [TOKENS] * len(PROMPTS):
            raise RuntimeError(f"vLLM generated {lengths} tokens instead of {TOKENS} each")


def used(device: str) -> int | None:
    """Return the bytes of the GPUs that all processes together hold, as NVML counts them, or None.

    None if NVML does not count them.
    """
    if device != "cuda":
        return None
    nvml = bindings()
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return sum(int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    except nvml.NVMLError:  # a divided GPU reports nothing about the whole
        return None
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def bindings() -> Any:
    """Return NVIDIA's own bindings, or the copy that vLLM ships; None without either."""
    for name in ("pynvml", "vllm.third_party.pynvml"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
