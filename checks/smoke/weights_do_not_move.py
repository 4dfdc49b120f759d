"""SMOKE157: a step of training leaves all weights as they are."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE157", 5, "a step of verl", "the step moved none of 27 tensors, with rewards that differ"
    )


@check("SMOKE157", phase="first update", cost="slow", examples=_examples)
def weights_do_not_move(run: SmokeRun) -> Iterator[Finding]:
    """A step of training leaves all weights unchanged.

    ## Why it matters

    Training runs and logs metrics, but nothing is learned. The smoke test rewards responses differently, so
    that the gradient cannot be zero, and compares the bytes of every tensor before and after the step of the
    optimizer.

    ## How to fix

    Look for frozen parameters, an optimizer that was built with other parameters than the model's, and a
    learning rate of 0.
    """
    yield from broken_by("SMOKE157", run)
