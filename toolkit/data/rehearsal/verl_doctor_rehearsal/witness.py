"""Writes down what really happens to the weights, outside of what training says about itself.

Each event is one JSON document in a line of the file that VERL_DOCTOR_TOLD names. Tensors are compared by digests of their bytes:
`exact` in their own type, and `seen` rounded to bfloat16, in which a rollout has them. Of a large tensor the beginning is compared.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_DIGITS = 16
_MOST = 1 << 20  # numbers of each tensor


def tell(event: str, **more: Any) -> None:
    """Write an event down, whole: a line is one write to a file that is opened for appending."""
    if not (path := os.environ.get("VERL_DOCTOR_TOLD")):
        return
    line = json.dumps({"event": event, "at": time.time(), "pid": os.getpid(), **more}) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes())


def _digest(shape: torch.Size, numbers: torch.Tensor) -> str:
    return hashlib.sha256(str(tuple(shape)).encode() + _bytes_of(numbers)).hexdigest()[:_DIGITS]


def _digests(tensors: Iterable[torch.Tensor]) -> dict[str, list[str]]:
    """Both digests of each tensor, of this process's part where it is spread over several."""
    exact, seen = [], []
    with torch.no_grad():
        for tensor in tensors:
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            numbers = local.detach().reshape(-1)[:_MOST].cpu()
            exact.append(_digest(local.shape, numbers))
            seen.append(_digest(local.shape, numbers.to(torch.bfloat16)))
    return {"exact": exact, "seen": seen}


def _of_optimizer(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _before_update(optimizer: torch.optim.Optimizer, _args: Any, _more: Any) -> None:
    tell("before update", **_digests(_of_optimizer(optimizer)))


def _after_update(optimizer: torch.optim.Optimizer, _args: Any, _more: Any) -> None:
    tell("after update", **_digests(_of_optimizer(optimizer)))


def watch_training() -> None:
    """See every step of every optimizer of this process."""
    register_optimizer_step_pre_hook(_before_update)
    register_optimizer_step_post_hook(_after_update)


def watch_rollout() -> None:
    """See what a model of vLLM holds each time that it has been given weights."""
    tell("rollout process")
    from vllm.model_executor.models.utils import AutoWeightsLoader

    load = AutoWeightsLoader.load_weights

    @functools.wraps(load)
    def load_weights(self: Any, *rest: Any, **more: Any) -> Any:
        loaded = load(self, *rest, **more)
        tell("rollout weights", **_digests(self.module.parameters()))
        return loaded

    AutoWeightsLoader.load_weights = load_weights
