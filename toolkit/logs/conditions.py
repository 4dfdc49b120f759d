"""Detects the kind of machine from a log, and omits the parts of a remedy that do not apply: advice for NVIDIA is useless on AMD GPUs or NPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from verl_doctor.toolkit.logs.lines import Line

# A trait of the machine, and the texts that reveal it.
_SHOWN = {
    "amd": re.compile(
        r"HIP error|hipError|HIP out of memory|No HIP GPUs|HSA_STATUS|/rocm[-/]|\bgfx\d{3,4}\b|platform rocm|/rccl/|rocBLAS|/dev/kfd|amdgpu"
    ),
    "npu": re.compile(
        r"torch_npu|NPU out of memory|NPU function error|HCCL (?:function )?error|\bERR\d{5} (?:PTA|DIST|OPS)|ASCEND_RT_VISIBLE|vllm_ascend/|"
        r"/Ascend/|platform ascend|\bdcmi\b|\bE[A-Z]\d{4}: "
    ),
    "nvidia": re.compile(
        r"NVIDIA|Tesla|NVRM|libcuda\.so|\bcuda(?:Error[A-Z]|Malloc)|CUDA error|CUDA out of memory|Cuda failure"
    ),
    "old GPU": re.compile(
        r"V100|Tesla T4|Quadro|GTX 1|RTX 20|TITAN|compute capability (?:of )?[1-7]\.\d|only supports Ampere"
    ),
    "no bfloat16": re.compile(
        r"Bfloat16 is only supported|BFloat16 is not supported|does not support bfloat16", re.IGNORECASE
    ),
}
# What a part of a remedy requires of the machine.
_DEMANDED = {
    "amd": re.compile(r"ROCm|rocm|HIP_|HSA_|ROCR_|\bgfx\b|/dev/kfd|AITER"),
    "npu": re.compile(r"CANN|HCCL|ASCEND|npu-smi|davinci|torch_npu"),
    "nvidia": re.compile(
        r"\bnvidia|NVIDIA|\bCUDA(?!_VISIBLE|\d{3})|\bcu1\d\d\b|nvcc|nvidia-smi|NVLink|flash-attn|FlashAttention"
    ),
    "new GPU": re.compile(r"Blackwell|Hopper"),
    "bfloat16": re.compile(r"dtype=bfloat16"),
}
_MAKERS = frozenset({"amd", "npu", "nvidia"})
_EXCLUDED = {"old GPU": "new GPU", "no bfloat16": "bfloat16"}
_NOTHING = "the message states what is wrong; the usual remedies do not apply to this machine"


def traits_of(lines: Iterable[Line]) -> frozenset[str]:
    """Return the machine's traits that a log reveals. HIP also mentions CUDA, so the rarer vendor counts."""
    texts = [line.text for line in lines]
    found = {trait for trait, shown in _SHOWN.items() if any(shown.search(text) for text in texts)}
    if found & {"amd", "npu"}:
        found.discard("nvidia")
    return frozenset(found)


def fitting(remedy: str, traits: AbstractSet[str]) -> str:
    """Return the parts of a remedy that no trait contradicts."""
    parts = remedy.split("; ")
    kept = [part for part in parts if not contradicts(part, traits)]
    return "; ".join(kept) or (_NOTHING if remedy else "")


def contradicts(part: str, traits: AbstractSet[str]) -> bool:
    """Return whether advice is for another kind of machine. The advice may name several vendors."""
    demanded = {trait for trait, words in _DEMANDED.items() if words.search(part)}
    makers = demanded & _MAKERS
    if makers and traits & _MAKERS and not makers & traits:
        return True
    return any(trait in traits and excluded in demanded for trait, excluded in _EXCLUDED.items())
