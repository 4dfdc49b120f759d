"""vLLM's CPU build as verl's rollout: what its processes need, loaded through `vllm.general_plugins`."""

from __future__ import annotations

from typing import Any

from verl_doctor_rehearsal import witness


def register() -> None:
    """Prepare a vLLM process."""
    witness.watch_rollout()
    _keep_weights_as_they_are()


def _keep_weights_as_they_are() -> None:
    """Multiply with PyTorch's own `linear`, and keep the weights in their original shape.

    On CPUs vLLM packs the weights of linear layers for its kernels after loading the model, and drops these
    parameters' loaders: verl's first weight update then fails with "'Parameter' object has no attribute
    'weight_loader'".
    """
    import torch
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool = False) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    if hasattr(utils, "dispatch_cpu_unquantized_gemm"):
        utils.dispatch_cpu_unquantized_gemm = plain
