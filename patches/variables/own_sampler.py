"""Fix for CUDA130: let vLLM sample with its own kernels, which need no compiler."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.sampler import VARIABLE, VllmSampler
from verl_doctor.toolkit.rule import Finding


@fix("own-sampler", repairs=("CUDA130", "CUDA132"), safety="safe", restart="Ray and the job")
def own_sampler(_: Finding, flashinfer: FlashInfer, sampler: VllmSampler) -> list[Change] | Refusal:
    """Let vLLM sample with its own kernels, which need no compiler.

    vLLM does this anyway on GPUs that FlashInfer does not support. The distribution of tokens stays the same.
    """
    if not sampler.can_be_switched:
        return Refusal(f"vLLM {sampler.version} does not read {VARIABLE}")
    why = f"vLLM {sampler.version} would compile FlashInfer's sampler with nvcc while the engine starts"
    return [SetVariable(VARIABLE, "0", why, f"flashinfer-jit-cache {flashinfer.version} is installed")]
