"""CUDA109: a Triton kernel does not compile or does not run."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.kernels.triton_kernel import TritonKernel
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_SECONDS = {"start": 0.1, "import torch": 3.2, "import triton": 0.4, "compile": 1.7, "run": 0.001}


def _examples() -> list[Example]:
    return [
        Example("the kernel runs", (TritonKernel(right=True, device="NVIDIA H200", seconds=_SECONDS),)),
        Example(
            "the kernel does not compile",
            (
                TritonKernel(
                    step="compile",
                    error="RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
                    device="NVIDIA H200",
                ),
            ),
            "while it is compiled: RuntimeError",
        ),
        Example(
            "torch cannot be imported",
            (TritonKernel(step="import torch", error="ImportError: libcudart.so.13"),),
            "no Triton kernel can be tried",
        ),
        Example(
            "the kernel hangs",
            (TritonKernel(step="run", error="it did not end within 60 s"),),
            "while it runs: it did not end",
        ),
        Example(
            "the kernel computes a wrong sum",
            (TritonKernel(right=False, device="NVIDIA H200"),),
            "wrong sums",
        ),
    ]


@check(
    "CUDA109",
    cost="gpu",
    requires={"CUDA104", "CUDA105", "CUDA106", "CUDA107", "CUDA108"},
    examples=_examples,
)
def triton_kernel_fails(kernel: TritonKernel) -> Iterator[Finding]:
    """A Triton kernel does not compile or does not run.

    ## Why it matters

    This tests whether compiler, linker, driver and Triton work together: one small kernel, compiled with an
    empty cache and run on the first GPU that the job sees. vLLM and torch.compile need many kernels.

    ## How to fix

    The error names the part that fails. `ptxas` errors mean that this Triton is older than the GPU; an
    invalid kernel image, that the driver is older than the CUDA of Triton's `ptxas`; wrong sums, that the GPU
    or its driver is faulty: see the rules about GPUs.
    """
    if kernel.works:
        return
    doing = {"compile": "while it is compiled", "run": "while it runs"}.get(kernel.step)
    where = f" on the {kernel.device}" if kernel.device else ""
    if not kernel.step:
        message = f"a Triton kernel that adds two vectors gives wrong sums{where}"
    elif doing:
        message = f"a Triton kernel fails{where} {doing}: {kernel.error}"
    else:
        message = f"no Triton kernel can be tried: '{kernel.step}' fails: {kernel.error}"
    took = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in kernel.seconds.items())
    yield Finding(
        message,
        Evidence(
            kernel.error or "wrong sums",
            "a kernel that runs",
            f"a child of the target's Python ({took})" if took else "",
        ),
        remedy=(
            "run verl-doctor check --deep again with TRITON_CACHE_DIR set to an empty folder: cached "
            "kernels may be for another GPU or driver"
        ),
        stops=(EVERY_JOB,),
        phase="start",
        subject=Subject("package", "triton", kernel.step),
    )
