"""Fix for CUDA133: set CUDA_HOME to a single folder that contains nvcc."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import CudaToolkit
from verl_doctor.toolkit.rule import Finding


@fix("cuda-home", repairs="CUDA133", safety="safe", restart="Ray and the job")
def cuda_home(_: Finding, toolkit: CudaToolkit) -> list[Change] | Refusal:
    """Set CUDA_HOME to a single folder with nvcc: an entry of its present list, or that of nvcc on PATH."""
    if not toolkit.candidate:
        return Refusal("nvcc is neither on PATH nor in /usr/local/cuda")
    why = f"{toolkit.given_by} was {toolkit.home}, which has no nvcc"
    return [SetVariable(toolkit.given_by, toolkit.candidate, why, node_only=True)]
