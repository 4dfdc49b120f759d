"""All rules about code compiled at start-up, on whole machines: healthy ones have no findings."""

from __future__ import annotations

from typing import Any

import pytest

from verl_doctor.checks.shared.caches import HUGGING_FACE, TRITON, VLLM, here
from verl_doctor.checks.shared.flashinfer_examples import H200, SAMPLER, TOOLKIT, TORCH
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import CudaToolkit
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked
from verl_doctor.toolkit.collectors.vllm.flashinfer_attention import FlashInferAttention
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.testing import run_check

RULES = [f"CUDA13{number}" for number in range(7)] + ["ENV117"]
CHECKS = [check for check in registry.load().checks if check.code in RULES]
LOCAL = {"kind": "ext4", "mounted_on": "/", "shared": False, "is_root": True}
NO_GPU = Absent("nothing is compiled for GPUs here: there is no NVIDIA GPU here")
NO_JOB = Unknown("no launch script was named")

HEALTHY_NODE = {
    FlashInfer: H200(built=("sampling",), cubin="0.6.12"),
    VllmSampler: SAMPLER(),
    FlashInferAttention: FlashInferAttention("0.24.0", "FLASH_ATTN", "/env/vllm/platforms/cuda.py"),
    CudaToolkit: TOOLKIT(given_by="CUDA_HOME"),
    Caches: here(TRITON(), VLLM(**LOCAL), HUGGING_FACE()),
}
# The driver's libraries and no toolkit, as in an image for running: nothing is compiled with nvcc.
RUNTIME_IMAGE = {
    **HEALTHY_NODE,
    FlashInfer: H200(),
    VllmSampler: SAMPLER(flashinfer=False),
    CudaToolkit: TOOLKIT(home="", given_by="", nvcc="", release="", targets=(), on_path="", ninja=""),
}
NO_GPUS = dict.fromkeys((FlashInfer, VllmSampler, FlashInferAttention, CudaToolkit, Caches), NO_GPU)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(HEALTHY_NODE, id="a node with H200s whose caches are warm"),
        pytest.param(RUNTIME_IMAGE, id="an image without a toolkit"),
        pytest.param(NO_GPUS, id="a head node without GPUs, and a laptop"),
    ],
)
def test_healthy_machines_have_no_findings(check: Any, machine: dict[type, Any]) -> None:
    unknown = [(fact, NO_JOB) for fact in (Configuration, AttentionAsked, AttentionBackends)]
    facts = [(fact, value) if isinstance(value, Unknown) else value for fact, value in machine.items()]
    result = run_check(check, TORCH, *unknown, *facts)
    assert result.status in {"pass", "not_applicable"}, result.reason
    assert result.findings == ()


def test_all_rules_are_registered() -> None:
    assert sorted(check.code for check in CHECKS) == RULES
