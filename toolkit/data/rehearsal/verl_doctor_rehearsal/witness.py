"""Writes down what really happens to the weights, outside of what training says about itself.

Each event is one JSON document in a line of the file that VERL_DOCTOR_TOLD names. Tensors are compared by digests of their bytes:
`exact` in their own type, and `seen` rounded to bfloat16, in which a rollout has them. Of a large tensor the beginning is compared.
FSDP's first version trains tensors that it has joined into one: they are taken apart again.
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
    return [
        piece
        for group in optimizer.param_groups
        for parameter in group["params"]
        for piece in pieces(parameter)
    ]


def pieces(parameter: torch.Tensor) -> Iterator[torch.Tensor]:
    """The model's tensors that a parameter holds. Of one that this process has a part of, the part: it has no shape of its own.

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
