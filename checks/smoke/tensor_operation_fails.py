"""SMOKE104: a matrix product on one of the job's devices fails."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE104",
        2,
        "devices",
        "multiply on cuda:3: AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    )


@check("SMOKE104", phase="workers", cost="slow", examples=_examples)
def tensor_operation_fails(run: SmokeRun) -> Iterator[Finding]:
    """A matrix product on one of the job's devices fails.

    ## Why it matters

    One faulty GPU of eight stops the whole job, and in a collective operation the others wait for it
    silently. The smoke test multiplies two matrices on each device and checks the result.

    ## How to fix

    `verl-doctor check` examines the driver, its libraries and the state of each GPU (CUDA101 to CUDA159). A
    single GPU that fails can be left out with `CUDA_VISIBLE_DEVICES` until it is reset.
    """
    yield from broken_by("SMOKE104", run)
