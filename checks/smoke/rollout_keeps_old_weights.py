"""SMOKE158: the rollout does not receive the updated weights."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE158", 5, "a step of verl", "the step moved 27 tensors, and none of them arrived in the rollout"
    )


@check("SMOKE158", phase="first update", cost="slow", examples=_examples)
def rollout_keeps_old_weights(run: SmokeRun) -> Iterator[Finding]:
    """The rollout does not receive the updated weights.

    ## Why it matters

    The model that generates and the model that is trained drift apart: samples come from old weights, and the
    ratios of the loss are wrong. The smoke test compares vLLM's weights after the sync with the trainer's,
    bit for bit.

    ## How to fix

    verl and vLLM may be incompatible in how weights are loaded: see `verl-doctor matrix`. A rollout in a type
    other than bfloat16 (`actor_rollout_ref.rollout.dtype`, quantization) rounds differently.
    """
    yield from broken_by("SMOKE158", run)
