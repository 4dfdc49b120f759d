"""CUDA117: torch is built for neither CUDA nor another accelerator."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import composed
from verl_doctor.checks.shared.extensions import TORCH
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

# Packages that give a torch without CUDA another accelerator.
_OTHER_ACCELERATORS = (
    *("torch-npu", "torch-mlu", "torch-musa", "torch-xla", "intel-extension-for-pytorch"),
    *("habana-torch-plugin", "torch-gcu", "torch-sdaa"),
)
_DEVICE = "trainer.device"
_PLATFORM = "VERL_PLATFORM"  # selects a platform that a plugin registers (verl/plugin/platform)
_CPU = TorchBuild(folder="/env/torch", version="2.13.0+cpu")
_PACKAGES = Packages((Distribution("torch", "2.13.0+cpu", "/env/torch-2.13.0.dist-info"),))
_NPU = Packages((*_PACKAGES.distributions, Distribution("torch-npu", "2.7.1", "/env/torch_npu.dist-info")))
_GPUS = Gpus(devices=(Device(index=0, uuid="GPU-0", name="NVIDIA H200"),), driver="580.159.04", cuda="13.0")
_NO_GPU = Unknown("there is no NVIDIA GPU here")


def _examples() -> list[Example]:
    return [
        Example("a build for CUDA", (TORCH, _PACKAGES, JobVariables(), _GPUS)),
        Example(
            "a build for ROCm",
            (TorchBuild(folder="/env/torch", version="2.8.0", hip="6.4"), _PACKAGES, JobVariables(), _GPUS),
        ),
        Example("an Ascend machine", (_CPU, _NPU, JobVariables(), (Gpus, _NO_GPU))),
        Example(
            "a rehearsal on CPUs",
            (_CPU, _PACKAGES, JobVariables({_PLATFORM: "verl_doctor_cpu"}), (Gpus, _NO_GPU)),
        ),
        Example(
            "a build for CPUs on a GPU machine",
            (_CPU, _PACKAGES, JobVariables(), _GPUS),
            "torch 2.13.0+cpu is built without CUDA",
        ),
        Example(
            "a job for CPUs",
            (_CPU, _PACKAGES, JobVariables(), (Gpus, _NO_GPU), composed({"trainer": {"device": "cpu"}})),
            "torch 2.13.0+cpu is built without CUDA",
        ),
        Example(
            "a build for CPUs on a machine without a GPU",
            (_CPU, _PACKAGES, JobVariables(), (Gpus, _NO_GPU)),
            "a job that starts in this environment fails",
        ),
    ]


@check("CUDA117", phase="workers", since="0.2", examples=_examples)
def torch_without_cuda(
    torch: TorchBuild,
    packages: Packages,
    variables: JobVariables,
    gpus: Gpus | Unknown,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """torch is built for neither CUDA nor another accelerator.

    ## Why it matters

    verl joins the processes of a job with NCCL, which builds of torch for CPUs do not contain: `RuntimeError:
    Distributed package doesn't have NCCL built in`. The settings do not change that, not even
    `trainer.device=cpu`. Such a build is installed when pip's index is PyTorch's for CPUs, or when a package
    asks for `torch==...+cpu`.

    On a machine without a GPU this is a warning, unless the job sets `trainer.device=cpu`: there, the
    environment may only serve to check or rehearse jobs that start elsewhere.

    ## How to fix

    Install a build for the CUDA that the driver supports: `pip install torch --index-url
    https://download.pytorch.org/whl/cu128`.
    """
    if torch.cuda or torch.hip or torch.xpu or not torch.version:
        return
    if packages.get(*_OTHER_ACCELERATORS) is not None or variables.has(_PLATFORM):
        return
    has_gpu = not isinstance(gpus, Unknown) and bool(gpus.devices)
    on_cpu = not isinstance(configuration, Unknown) and configuration.get(_DEVICE) == "cpu"
    yield Finding(
        f"torch {torch.version} is built without CUDA: a job that starts in this environment fails when its "
        "processes join with NCCL",
        Evidence(
            found="cuda = None",
            wanted="a build for the GPUs' CUDA",
            read_from=f"{torch.folder}/version.py",
        ),
        remedy="install a build of torch for CUDA, or pass the environment of the GPU machine with --python",
        subject=Subject("package", "torch"),
        severity="error" if has_gpu or on_cpu else "warning",
        stops=(EVERY_JOB,) if has_gpu or on_cpu else (),
    )
