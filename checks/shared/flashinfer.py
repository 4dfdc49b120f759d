"""Shared by the rules about FlashInfer.

It covers whether its sampler will be compiled, and the wheel that contains it compiled.
"""

from __future__ import annotations

from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Subject

KERNEL = "sampling"
_MODE = "actor_rollout_ref.rollout.logprobs_mode"


def about(flashinfer: FlashInfer) -> Subject:
    """FlashInfer as the subject of a finding, by the name of its package."""
    return Subject("package", "flashinfer-python", flashinfer.version)


def must_compile_sampler(
    flashinfer: FlashInfer, sampler: VllmSampler, configuration: Configuration | Unknown
) -> bool:
    """Whether an engine that starts here needs FlashInfer's sampler, which is not compiled yet."""
    return KERNEL not in flashinfer.built and takes_flashinfer(sampler, configuration)


def takes_flashinfer(sampler: VllmSampler, configuration: Configuration | Unknown) -> bool:
    """Whether the job's engine samples with FlashInfer.

    It does not if it needs log probabilities as they are after top-k and top-p.
    """
    return sampler.with_processed if _requires_processed(sampler, configuration) else sampler.flashinfer


def may_compile_sampler(
    flashinfer: FlashInfer, sampler: VllmSampler, configuration: Configuration | Unknown
) -> bool:
    """Whether it needs that kernel only if vLLM uses its second model runner, which depends on the model."""
    first = takes_flashinfer(sampler, configuration)
    return KERNEL not in flashinfer.built and sampler.second_runner and not first


def _requires_processed(sampler: VllmSampler, configuration: Configuration | Unknown) -> bool:
    mode = None if isinstance(configuration, Unknown) else configuration.get(_MODE)
    return (mode if isinstance(mode, str) else sampler.wanted_by_verl).startswith("processed")


def wheel(flashinfer: FlashInfer, torch: TorchBuild | Unknown) -> str:
    """The command that installs the wheel with compiled kernels from FlashInfer's own index for each CUDA."""
    cuda = "" if isinstance(torch, Unknown) else torch.cuda
    label = f"cu{cuda.replace('.', '')}" if cuda else "cu130 (or that of your CUDA)"
    return (
        f"pip install flashinfer-jit-cache=={flashinfer.version} --index-url "
        f"https://flashinfer.ai/whl/{label}"
    )
