"""CUDA133: CUDA_HOME does not point to a CUDA toolkit."""

from __future__ import annotations

import os
from collections.abc import Iterator

from verl_doctor.checks.shared.flashinfer import must_compile_sampler
from verl_doctor.checks.shared.flashinfer_examples import H200, SAMPLER, TOOLKIT
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import VARIABLES, CudaToolkit
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("a toolkit", (TOOLKIT(given_by="CUDA_HOME"), H200(), SAMPLER())),
        Example("no toolkit, and no variable names one", (TOOLKIT(home="", nvcc="", given_by=""),)),
        Example(
            "a list of folders",
            (TOOLKIT(given_by="CUDA_HOME", home=":/usr/local/cuda-12.8", nvcc=""),),
            "is a list",
        ),
        Example(
            "a folder that does not exist",
            (TOOLKIT(given_by="CUDA_PATH", home="/usr/local/cuda-11.8", nvcc=""),),
            "CUDA_PATH=/usr/local/cuda-11.8 contains no bin/nvcc",
        ),
    ]


@check("CUDA133", severity="warning", examples=_examples)
def cuda_home_malformed(
    toolkit: CudaToolkit,
    flashinfer: FlashInfer | Unknown,
    sampler: VllmSampler | Unknown,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """CUDA_HOME does not point to a CUDA toolkit.

    ## Why it matters

    FlashInfer, torch and DeepSpeed use CUDA_HOME, or else CUDA_PATH, without checking it, even if a working
    nvcc is on PATH. A script that extends it like a list (`CUDA_HOME=$CUDA_HOME:/usr/local/cuda`) yields a
    folder that does not exist: `No such file or directory: ':/usr/local/cuda/bin/nvcc'`.

    ## How to fix

    Set it to one folder that holds `bin/nvcc`, or unset it. `verl-doctor fix --output-env` writes the line.
    """
    if toolkit.given_by not in VARIABLES or toolkit.nvcc:
        return
    needed = (
        isinstance(flashinfer, FlashInfer)
        and isinstance(sampler, VllmSampler)
        and must_compile_sampler(flashinfer, sampler, configuration)
    )
    is_list = os.pathsep in toolkit.home
    yield Finding(
        f"{toolkit.given_by}={toolkit.home} "
        + ("is a list, but must be one folder" if is_list else "contains no bin/nvcc"),
        Evidence(
            f"nvcc on PATH: {toolkit.on_path or 'none'}",
            "a folder with bin/nvcc"
            + (": FlashInfer compiles a kernel when the engine starts" if needed else ""),
            toolkit.given_by,
        ),
        remedy=f"set {toolkit.given_by} to one folder that contains bin/nvcc, or unset it",
        severity="error" if needed else "warning" if is_list else "info",
        fix="cuda-home" if toolkit.candidate else None,
        stops=(EVERY_JOB,) if needed else (),
        phase="engine" if needed else None,
        subject=Subject("variable", toolkit.given_by),
    )
