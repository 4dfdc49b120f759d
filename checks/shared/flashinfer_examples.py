"""Facts for the examples of the rules about FlashInfer: an H200 with FlashInfer as installed by pip."""

from __future__ import annotations

from functools import partial

from verl_doctor.checks.shared.configuration import with_rollout
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import CudaToolkit
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler

H200 = partial(
    FlashInfer,
    version="0.6.12",
    folder="/env/flashinfer",
    capability="9.0",
    cache="/home/me/.cache/flashinfer/0.6.12",
)
TOOLKIT = partial(
    CudaToolkit,
    home="/usr/local/cuda",
    given_by="PATH",
    nvcc="/usr/local/cuda/bin/nvcc",
    release="13.0",
    targets=("8.0", "9.0", "10.0"),
    on_path="/usr/local/cuda/bin/nvcc",
    ninja="/env/bin/ninja",
    compiler="/usr/bin/gcc",
    cxx="/usr/bin/c++",
    gcc=13,
    newest_gcc=15,
)
_CHOOSES = "/env/vllm/v1/sample/ops/topk_topp_sampler.py"
SAMPLER = partial(VllmSampler, "0.24.0", _CHOOSES, flashinfer=True)
TORCH = TorchBuild(folder="/env/torch", version="2.11.0+cu130", cuda="13.0")


def job(mode: str) -> Configuration:
    """A job that requests log probabilities of this mode."""
    return with_rollout(logprobs_mode=mode)
