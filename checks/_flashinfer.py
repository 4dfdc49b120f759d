"""What the rules about FlashInfer share: whether its sampler will be compiled, and the wheel that has it ready."""

from __future__ import annotations

from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_flashinfer import FlashInfer
from verl_doctor.toolkit.fact_torch_build import TorchBuild
from verl_doctor.toolkit.fact_vllm_sampler import VllmSampler
from verl_doctor.toolkit.facts import Unknown

KERNEL = "sampling"
_MODE = "actor_rollout_ref.rollout.logprobs_mode"


def must_compile_sampler(
    flashinfer: FlashInfer, sampler: VllmSampler, configuration: Configuration | Unknown
) -> bool:
    """Whether an engine that starts here needs FlashInfer's sampler, and it is not there compiled."""
    return KERNEL not in flashinfer.built and takes_flashinfer(sampler, configuration)


def takes_flashinfer(sampler: VllmSampler, configuration: Configuration | Unknown) -> bool:
    """Whether the job's engine samples with FlashInfer: not when it wants log probabilities as they are after top-k and top-p."""
    mode = None if isinstance(configuration, Unknown) else configuration.get(_MODE)
    mode = mode if isinstance(mode, str) else sampler.wanted_by_verl
    if not mode.startswith("processed"):
        return sampler.flashinfer
    return sampler.with_processed or sampler.second_runner


def wheel(flashinfer: FlashInfer, torch: TorchBuild | Unknown) -> str:
    """The command that installs the wheel with compiled kernels. It lies on FlashInfer's own index, one for each CUDA."""
    cuda = "" if isinstance(torch, Unknown) else torch.cuda
    label = f"cu{cuda.replace('.', '')}" if cuda else "cu130 (or that of your CUDA)"
    return f"pip install flashinfer-jit-cache=={flashinfer.version} --index-url https://flashinfer.ai/whl/{label}"
