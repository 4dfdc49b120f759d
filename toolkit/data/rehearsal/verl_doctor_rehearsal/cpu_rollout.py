"""vLLM's CPU build as the rollout of verl: what its processes need, loaded through `vllm.general_plugins`."""

from __future__ import annotations

from typing import Any

from verl_doctor_rehearsal import witness


def register() -> None:
    """Prepare a process of vLLM's."""
    witness.watch_rollout()
    _keep_weights_as_they_are()


def _keep_weights_as_they_are() -> None:
    """Multiply with PyTorch's own `linear`, and leave the weights in the shape that they came in.

    vLLM on processors packs the weights of linear layers for its kernels when the model has been loaded, and drops the loaders of
    these parameters: the first weights that verl sends end in "'Parameter' object has no attribute 'weight_loader'".
    """
    import torch
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool = False) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    if hasattr(utils, "dispatch_cpu_unquantized_gemm"):
        utils.dispatch_cpu_unquantized_gemm = plain
