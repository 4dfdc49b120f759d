"""What the rules about FlashInfer share: whether its sampler will be compiled, and the wheel that has it ready."""

from __future__ import annotations

from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_flashinfer import FlashInfer
from verl_doctor.toolkit.fact_packages import Packages
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


def wheel(flashinfer: FlashInfer, packages: Packages | Unknown) -> str:
    """The command that installs the wheel with compiled kernels. It lies on FlashInfer's own index, one for each CUDA."""
    torch = None if isinstance(packages, Unknown) else packages.get("torch")
    cuda = torch.version.partition("+")[2] if torch else ""
    label = cuda if cuda.startswith("cu") else "cu130 (or that of your CUDA)"
    return f"pip install flashinfer-jit-cache=={flashinfer.version} --index-url https://flashinfer.ai/whl/{label}"


def cuda_of_torch(packages: Packages | Unknown) -> str:
    """The CUDA that torch is built for, as "13.0"; empty when its version and the packages beside it do not say."""
    if isinstance(packages, Unknown) or (torch := packages.get("torch")) is None:
        return ""
    label = torch.version.partition("+")[2]
    if label.startswith("cu") and label[2:].isdigit():
        return f"{label[2:-1]}.{label[-1]}"
    runtime = packages.get("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")
    return ".".join(runtime.version.split(".")[:2]) if runtime else ""
