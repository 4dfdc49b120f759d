"""Detects the kind of machine and the installed releases from a log.

Omits the parts of a remedy that do not apply.

Advice for NVIDIA is useless on AMD GPUs or NPUs, and so is the advice to install what is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from verl_doctor.toolkit.logs.advice.installed import is_within, versions_in
from verl_doctor.toolkit.logs.lines import Line

# A trait of the machine, and the texts that reveal it.
_SHOWN = {
    "amd": re.compile(
        r"HIP error|hipError|HIP out of memory|No HIP GPUs|HSA_STATUS|/rocm[-/]|\bgfx\d{3,4}\b"
        r"|platform rocm|/rccl/|rocBLAS|/dev/kfd|amdgpu|\+rocm\d|AMD Instinct|AMD Radeon"
    ),
    "npu": re.compile(
        r"torch_npu|NPU out of memory|NPU function error|HCCL (?:function )?error|\bERR\d{5} (?:PTA|DIST"
        r"|OPS)|ASCEND_RT_VISIBLE|vllm_ascend/|/Ascend/|platform ascend|\bdcmi\b|\bE[A-Z]\d{4}: "
    ),
    "nvidia": re.compile(
        r"NVIDIA|Tesla|NVRM|libcuda\.so|\bcuda(?:Error[A-Z]|Malloc)|CUDA error|CUDA out of memory"
        r"|Cuda failure"
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
        r"\bnvidia|NVIDIA|\bCUDA(?!_VISIBLE|\d{3})|\bcu1\d\d\b|nvcc|nvidia-smi|NVLink|flash-attn"
        r"|FlashAttention"
    ),
    "new GPU": re.compile(r"Blackwell|Hopper"),
    "bfloat16": re.compile(r"dtype=bfloat16"),
}
_MAKERS = frozenset({"amd", "npu", "nvidia"})
_EXCLUDED = {"old GPU": "new GPU", "no bfloat16": "bfloat16"}
_INSTALLED = re.compile(
    r"pip install (?:-\S+ )*'?(?P<package>[A-Za-z][\w.-]*)(?P<bounds>(?:[<>=!~]=?\d[\w.]*,?)*)"
)
_ENVIRONMENT = re.compile(r"create the environment with Python (?P<versions>3\.\d+(?:(?:, | or )3\.\d+)*)")
_PYTHON = re.compile(r"/python(3\.\d+)/")
_ALTERNATIVE = ", or "
_NOTHING = "the message states what is wrong; the usual remedies do not apply to this machine"


def traits_of(lines: Iterable[Line]) -> frozenset[str]:
    """Return the machine's traits that a log reveals. HIP also mentions CUDA, so the rarer vendor counts."""
    texts = [line.text for line in lines]
    found = {trait for trait, shown in _SHOWN.items() if any(shown.search(text) for text in texts)}
    if found & {"amd", "npu"}:
        found.discard("nvidia")
    return frozenset(found)


def releases_in(lines: Sequence[Line], remedies: Iterable[str]) -> frozenset[str]:
    """Return the releases that a log names of the packages and the Python that remedies propose.

    They are traits ("verl==0.9.1").
    """
    found: set[str] = set()
    for remedy in remedies:
        for package in {package for package, bounds in _proposed(remedy) if bounds}:
            found.update(f"{package}=={version}" for version in versions_in(package, lines))
        if _ENVIRONMENT.search(remedy):
            found.update(
                f"python=={shown[1]}" for line in lines if (shown := _PYTHON.search(line.text)) is not None
            )
    return frozenset(found)


def _proposed(words: str) -> Iterator[tuple[str, str]]:
    """Yield the packages that advice installs, each with the bounds of its release, "" for none."""
    return ((found["package"], found["bounds"]) for found in _INSTALLED.finditer(words))


def fitting(remedy: str, traits: AbstractSet[str], advice: str = "") -> str:
    """Return the parts of a remedy that no trait contradicts.

    Those that install what `advice` installs already are left out.
    """
    others = {package for package, _ in _proposed(advice)}
    kept = [
        _ALTERNATIVE.join(left)
        for part in remedy.split("; ")
        if not contradicts(part, traits) and not any(package in others for package, _ in _proposed(part))
        if (left := [each for each in part.split(_ALTERNATIVE) if not _is_installed(each, traits)])
    ]
    return "; ".join(kept) or (_NOTHING if remedy and not others else "")


def _is_installed(words: str, traits: AbstractSet[str]) -> bool:
    """Return whether advice proposes a release or a Python that the log shows as installed."""
    if found := _ENVIRONMENT.search(words):
        return any(f"python=={version}" in traits for version in re.findall(r"3\.\d+", found["versions"]))
    releases = [trait.split("==") for trait in traits if "==" in trait]
    return any(
        name == package and is_within(release, bounds.rstrip(","))
        for package, bounds in _proposed(words)
        for name, release in releases
    )


def contradicts(part: str, traits: AbstractSet[str]) -> bool:
    """Return whether advice is for another kind of machine. The advice may name several vendors."""
    demanded = {trait for trait, words in _DEMANDED.items() if words.search(part)}
    makers = demanded & _MAKERS
    if makers and traits & _MAKERS and not makers & traits:
        return True
    return any(trait in traits and excluded in demanded for trait, excluded in _EXCLUDED.items())
