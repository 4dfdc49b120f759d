"""vLLM loads a model, generates, and on GPUs sleeps and wakes. Runs under the target's interpreter.

Called with the model's folder, "cuda" or "cpu", and the engine's further arguments as JSON. No CUDA is started in this process
itself: vLLM would have to start its engine otherwise than it does in a job.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from typing import Any

from verl_doctor.toolkit.probes.smoke_steps import step, tell

TOKENS = 16
PROMPTS = ["1 + 1 =", "The capital of France is"]


def main(model: str, device: str, more: str) -> None:
    """Climb step by step. What fails ends the child with its traceback."""
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
        tell(left_out="sleep and wake: memory of GPUs only is given back")
        return
    awake = used(device)
    with step("sleep"):
        engine.sleep(level=1)
    asleep_now = used(device)
    if before is None or awake is None or asleep_now is None:
        tell(left_out="how much memory sleep gives back: NVML does not tell it here")
    else:
        tell(took=awake - before, given_back=awake - asleep_now)
    with step("wake"):
        engine.wake_up()
    generate(engine, sampling, "generate again")


def generate(engine: Any, sampling: Any, name: str) -> None:
    """As many tokens as are asked for come out of each prompt."""
    with step(name):
        answers = engine.generate(PROMPTS, sampling, use_tqdm=False)
        lengths = [len(answer.outputs[0].token_ids) for answer in answers]
        if lengths != [TOKENS] * len(PROMPTS):
            raise RuntimeError(f"vLLM generated {lengths} tokens where {TOKENS} each were asked for")


def used(device: str) -> int | None:
    """The bytes that all processes together have of the GPUs, as NVML counts them; None where it does not."""
    if device != "cuda":
        return None
    nvml = bindings()
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return sum(int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    except nvml.NVMLError:  # a GPU that is divided tells nothing of the whole
        return None
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def bindings() -> Any:
    """NVIDIA's own, or the copy that vLLM brings along; None without either."""
    for name in ("pynvml", "vllm.third_party.pynvml"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
