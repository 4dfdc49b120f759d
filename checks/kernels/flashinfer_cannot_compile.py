"""CUDA132: FlashInfer must compile a kernel here, and cannot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.checks.shared.flashinfer import must_compile_sampler, wheel
from verl_doctor.checks.shared.flashinfer_examples import H200, SAMPLER, TOOLKIT, TORCH
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import LIBRARIES, CudaToolkit
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.sampler import VARIABLE, VllmSampler
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed


def _examples() -> list[Example]:
    return [
        Example("everything is installed", (H200(), SAMPLER(), TORCH, TOOLKIT())),
        Example("nothing must be compiled", (H200(built=("sampling",)), SAMPLER(), TORCH, TOOLKIT(nvcc=""))),
        Example(
            "no nvcc", (H200(), SAMPLER(), TORCH, TOOLKIT(home="", nvcc="", on_path="")), "nvcc is missing"
        ),
        Example(
            "a folder without nvcc",
            (H200(), SAMPLER(), TORCH, TOOLKIT(nvcc="", on_path="")),
            "/usr/local/cuda/bin/nvcc is missing",
        ),
        Example(
            "ninja is not on PATH", (H200(), SAMPLER(), TORCH, TOOLKIT(ninja="")), "ninja is not on PATH"
        ),
        Example(
            "CC names a missing file",
            (H200(), SAMPLER(), TORCH, TOOLKIT(compiler="", compiler_given_by="CC")),
            "CC does not name a compiler",
        ),
        Example("gcc without C++", (H200(), SAMPLER(), TORCH, TOOLKIT(cxx="")), "c++ is not on PATH"),
        Example("a gcc that nvcc refuses", (H200(), SAMPLER(), TORCH, TOOLKIT(gcc=16)), "refuses gcc 16"),
        Example(
            "nvcc does not support the GPU",
            (H200(), SAMPLER(), TORCH, TOOLKIT(targets=("7.5", "8.0"))),
            "does not support GPUs of capability 9.0",
        ),
        Example(
            "the CUDA of another torch",
            (H200(), SAMPLER(), TORCH, TOOLKIT(release="12.8")),
            "is from CUDA 12.8, but torch is built for CUDA 13.0",
        ),
        Example(
            "a toolkit with nothing but nvcc",
            (H200(), SAMPLER(), TORCH, TOOLKIT(lacks=("curand.h", "curand_kernel.h"))),
            "has no curand.h",
        ),
        Example(
            "a wrapper of nvcc in a separate folder",
            (H200(), SAMPLER(), TORCH, TOOLKIT(home="/usr/local", unlinkable=("libcudart.so", "libcuda.so"))),
            "the linker finds no libcudart.so, libcuda.so with /usr/local",
        ),
    ]


@check("CUDA132", phase="engine", requires={"CUDA133"}, examples=_examples)
def flashinfer_cannot_compile(
    flashinfer: FlashInfer,
    sampler: VllmSampler,
    toolkit: CudaToolkit,
    torch: TorchBuild | Unknown,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """FlashInfer must compile a kernel here, and cannot.

    ## Why it matters

    Without a compiled kernel FlashInfer calls ninja, nvcc and the C++ compiler while the engine starts. If
    one of them is missing or incompatible with the others, the GPU or torch, the engine fails with `Ninja
    build failed` or `Could not find nvcc`, after the model was loaded.

    ## How to fix

    Install `flashinfer-jit-cache` of exactly FlashInfer's version, which holds the compiled kernel, or set
    `VLLM_USE_FLASHINFER_SAMPLER=0`, so that none is needed. Or install what is missing.
    """
    if not must_compile_sampler(flashinfer, sampler, configuration):
        return
    switch = f"set {VARIABLE}=0, or " if sampler.can_be_switched else ""
    for problem in _problems(
        toolkit, flashinfer.capability, "" if isinstance(torch, Unknown) else torch.cuda
    ):
        yield Finding(
            (
                f"FlashInfer {flashinfer.version} must compile its sampler when vLLM {sampler.version} "
                f"starts, and {problem.what}"
            ),
            Evidence(problem.found, problem.wanted, toolkit.home),
            remedy=f"{switch}install the compiled one: {wheel(flashinfer, torch)}",
            fix="own-sampler" if sampler.can_be_switched else None,
            severity=None if problem.certain else "warning",
            stops=(EVERY_JOB,) if problem.certain else (),
            may_stop=() if problem.certain else (EVERY_JOB,),
            phase="start",
            subject=problem.subject,
        )


@dataclass(frozen=True)
class _Problem:
    """What is wrong, found and expected, and whether compilation is certain to fail."""

    what: str
    found: str
    wanted: str
    subject: Subject
    certain: bool = True


def _problems(toolkit: CudaToolkit, capability: str, cuda: str) -> Iterator[_Problem]:
    """Yield everything that is wrong. Without nvcc the rest does not matter."""
    if not toolkit.nvcc:
        place = f"{toolkit.home}/bin/nvcc" if toolkit.home else "nvcc"
        where = f", and {toolkit.on_path} is not used" if toolkit.on_path else ""
        given_by = toolkit.given_by or "neither CUDA_HOME nor PATH"
        yield _Problem(
            f"{place} is missing", f"{given_by} names it{where}", "a CUDA toolkit", Subject("file", place)
        )
        return
    yield from _missing(toolkit)
    if toolkit.newest_gcc and toolkit.gcc > toolkit.newest_gcc:
        wanted = f"gcc {toolkit.newest_gcc} or older (crt/host_config.h)"
        yield _Problem(
            f"nvcc {toolkit.release} refuses gcc {toolkit.gcc}",
            toolkit.compiler,
            wanted,
            Subject("file", toolkit.compiler),
        )
    if toolkit.targets and capability not in toolkit.targets:
        unknown = f"nvcc {toolkit.release} does not support GPUs of capability {capability}"
        supported = f"it supports {', '.join(toolkit.targets)}"
        yield _Problem(unknown, toolkit.nvcc, supported, Subject("file", toolkit.nvcc, capability))
    if toolkit.release and cuda and toolkit.release.split(".")[0] != cuda.split(".", maxsplit=1)[0]:
        # Code linked with one CUDA's library may find it next to the other's.
        differs = f"nvcc is from CUDA {toolkit.release}, but torch is built for CUDA {cuda}"
        nvcc = Subject("file", toolkit.nvcc, f"CUDA {cuda}")
        yield _Problem(differs, toolkit.nvcc, f"nvcc from CUDA {cuda}", nvcc, certain=False)
    if toolkit.unlinkable:
        wanted = (
            f"CUDA_HOME={toolkit.candidate}"
            if toolkit.candidate
            else "its stubs and development libraries (cuda-cudart-dev)"
        )
        absent = f"the linker finds no {listed(toolkit.unlinkable, len(LIBRARIES))} with {toolkit.home}"
        libraries = Subject("library", ",".join(toolkit.unlinkable))
        yield _Problem(absent, f"named by {toolkit.given_by or 'nothing'}", wanted, libraries)
    if toolkit.lacks:
        lacks = f"{toolkit.home}/include has no {listed(toolkit.lacks, 3)}"
        yield _Problem(
            lacks,
            "FlashInfer's sources include it",
            "the toolkit's development packages (curand)",
            Subject("file", ",".join(toolkit.lacks)),
        )


def _missing(toolkit: CudaToolkit) -> Iterator[_Problem]:
    """Yield the other missing programs that a compilation starts."""
    if not toolkit.ninja:
        wanted = "ninja, as in the bin folder of the environment"
        yield _Problem("ninja is not on PATH", "PATH of the job", wanted, Subject("file", "ninja"))
    for path, given_by, usual in (
        (toolkit.compiler, toolkit.compiler_given_by, "gcc"),
        (toolkit.cxx, toolkit.cxx_given_by, "c++"),
    ):
        if not path:
            what = f"{given_by} does not name a compiler" if given_by else f"{usual} is not on PATH"
            subject = Subject("variable", given_by) if given_by else Subject("file", usual)
            yield _Problem(what, given_by or "PATH of the job", "a C++ compiler", subject)
