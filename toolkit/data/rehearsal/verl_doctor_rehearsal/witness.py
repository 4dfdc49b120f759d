"""Record what really happens to the weights, independently of what training reports.

Each event is one JSON document per line of the file that VERL_DOCTOR_TOLD names. Tensors are compared by
digests of their bytes: `exact` in their own type, and `seen` rounded to bfloat16, the rollout's type. Only
the beginning of a large tensor is compared. FSDP's first version trains tensors that it has joined into one:
they are separated again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_DIGITS = 16
_MOST = 1 << 20  # numbers of each tensor


def record(event: str, **more: Any) -> None:
    """Write one event: a line is a single write to a file opened for appending."""
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
    """Return both digests of each tensor, or of this process's part if it is sharded."""
    exact, seen = [], []
    with torch.no_grad():
        for tensor in tensors:
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            numbers = local.detach().reshape(-1)[:_MOST].cpu()
            exact.append(_digest(local.shape, numbers))
            seen.append(_digest(local.shape, numbers.to(torch.bfloat16)))
    return {"exact": exact, "seen": seen}


def _of_optimizer(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [
        piece
        for group in optimizer.param_groups
        for parameter in group["params"]
        for piece in pieces(parameter)
    ]


def pieces(parameter: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the model's tensors that a parameter holds.

    A tensor of which this process has a part is returned as that part, without its shape.

    torch/distributed/fsdp/_flat_param.py: `_shapes` and `_shard_param_infos` have one entry for each tensor.
    """
    shapes, places = getattr(parameter, "_shapes", None), getattr(parameter, "_shard_param_infos", None)
    if not shapes or not places:
        yield parameter
        return
    flat = parameter.detach().reshape(-1)
    for shape, place in zip(shapes, places, strict=True):
        if place.in_shard:
            part = flat[place.offset_in_shard : place.offset_in_shard + place.numel_in_shard]
            yield part.view(shape) if place.numel_in_shard == shape.numel() else part


def _before_update(optimizer: torch.optim.Optimizer, _args: Any, _more: Any) -> None:
    record("before update", **_digests(_of_optimizer(optimizer)))


def _after_update(optimizer: torch.optim.Optimizer, _args: Any, _more: Any) -> None:
    record("after update", **_digests(_of_optimizer(optimizer)))


def watch_training() -> None:
    """Record every step of every optimizer of this process."""
    register_optimizer_step_pre_hook(_before_update)
    register_optimizer_step_post_hook(_after_update)


def watch_rollout() -> None:
    """Record what a vLLM model holds after each weight update."""
    record("rollout process")
    from vllm.model_executor.models.utils import AutoWeightsLoader

    load = AutoWeightsLoader.load_weights

    @functools.wraps(load)
    def load_weights(self: Any, *rest: Any, **more: Any) -> Any:
        loaded = load(self, *rest, **more)
        record("rollout weights", **_digests(self.module.parameters()))
        return loaded

    AutoWeightsLoader.load_weights = load_weights
