"""The packages that logs name."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.logs import packages


@pytest.mark.parametrize(
    ("module", "requirement"),
    [("hydra", "hydra-core"), ("fla", "flash-linear-attention"), ("cv2", "opencv-python-headless"), ("flash_attn", "flash-attn"), ("my_module", "my-module")],
)  # fmt: skip
def test_module_is_installed_by_its_distribution(module: str, requirement: str) -> None:
    assert packages.distribution(module) == requirement


def test_module_is_listed_once() -> None:
    known = packages._packages()
    assert not known.same_name & known.distributions.keys()
    assert not known.from_source & (known.same_name | known.distributions.keys())


@pytest.mark.parametrize(
    ("library", "wheel"),
    [("libcudart.so.12", "nvidia-cuda-runtime-cu12"), ("libcudart.so.13", "nvidia-cuda-runtime"), ("libcudart.so.11.0", ""), ("libc.so.6", "")],
)  # fmt: skip
def test_library_of_cuda_is_in_a_wheel(library: str, wheel: str) -> None:
    assert packages.cuda_wheel(library) == wheel


def test_names_lead_to_packages_and_releases() -> None:
    assert packages.owner_of("GRPOConfig") == "trl"
    assert packages.owner_of("NoSuchClass") == ""
    assert packages.bounds("Qwen3ForCausalLM", "transformers") == ">=4.51"
    assert packages.provider("google.cloud.storage") == "google-cloud-storage"
