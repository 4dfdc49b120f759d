"""SMOKE105: No Triton kernel can be compiled and run."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of("SMOKE105", 2, "devices", "compile: RuntimeError: Failed to find C compiler")


@check("SMOKE105", phase="engine", cost="slow", examples=_examples)
def no_triton_kernel_runs(run: SmokeRun) -> Iterator[Finding]:
    """No Triton kernel can be compiled and run.

    ## Why it matters

    vLLM, torch.compile and verl's own fused kernels compile with Triton, which needs a C compiler, Python's
    header and a `libcuda` that the linker finds. Without them vLLM fails while it starts.

    ## How to fix

    `verl-doctor check --deep` shows which of the three is missing (CUDA105 to CUDA109), and `verl-doctor fix`
    repairs what can be repaired.
    """
    yield from broken_by("SMOKE105", run)
