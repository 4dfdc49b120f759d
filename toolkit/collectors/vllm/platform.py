"""The kind of device that the vLLM of the target is built for."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.facts import Unknown, collector

_NAMED_IN_VERSIONS = ("rocm", "xpu", "tpu")


@dataclass(frozen=True)
class VllmPlatform:
    """`name` is vLLM's platform module: "cuda", "rocm", "xpu", "tpu" or "cpu".

    `evidence` is the version that shows it.
    """

    name: str
    evidence: str


@collector(kept=True)
def vllm_platform(vllm: VllmTree, packages: Packages | Unknown) -> VllmPlatform | Unknown:
    """Read it from versions.

    The platform is the CPU if vLLM's own version names it (vllm/platforms), else what torch is built for.
    """
    own = f"{vllm.distribution} {vllm.tree.version}" if vllm.distribution else ""
    if "cpu" in own:
        return VllmPlatform("cpu", own)
    torch = None if isinstance(packages, Unknown) else packages.get("torch")
    evidence = f"torch {torch.version}" if torch is not None else ""
    for name in _NAMED_IN_VERSIONS:
        for version in (own, evidence):
            if name in version:
                return VllmPlatform(name, version)
    if torch is None or isinstance(packages, Unknown):
        return Unknown("which kind of device vLLM would run on cannot be determined without torch")
    if "+cu" in torch.version or any(map(_is_cuda_runtime, packages.distributions)):
        return VllmPlatform("cuda", evidence)
    return Unknown(f"which kind of device vLLM would run on cannot be determined from {evidence}")


def _is_cuda_runtime(distribution: Distribution) -> bool:
    """Return whether it is a CUDA library package.

    The torch wheels on the package index are for CUDA and require these.
    """
    return distribution.name.startswith("nvidia-cuda-runtime")
