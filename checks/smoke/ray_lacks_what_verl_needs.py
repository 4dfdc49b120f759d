"""SMOKE107: Ray starts, but does not do what verl needs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE107",
        3,
        "Ray",
        "a placement group: RuntimeError: Ray did not place 8 x 1 GPU and 1 CPU within 60 s",
    )


@check("SMOKE107", phase="ray", cost="slow", examples=_examples)
def ray_lacks_what_verl_needs(run: SmokeRun) -> Iterator[Finding]:
    """Ray starts, but does not do what verl needs.

    ## Why it matters

    verl finds its workers by name, passes them variables in a `runtime_env`, places each on its own GPU with
    a placement group, and calls them as a group. The smoke test tries each of these with a small actor, then
    with verl's own classes.

    ## How to fix

    The step before the cause shows which of these failed. Fewer GPUs than expected: `CUDA_VISIBLE_DEVICES`
    and `verl-doctor check` (CUDA140 to CUDA159). An error in verl's classes: incompatible versions of Ray and
    verl (`verl-doctor matrix`).
    """
    yield from broken_by("SMOKE107", run)
