"""SMOKE108: vLLM does not load the model."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE108", 4, "vLLM", "load the model: SafetensorError: Error while deserializing header"
    )


@check("SMOKE108", phase="engine", cost="slow", examples=_examples)
def vllm_does_not_load_the_model(run: SmokeRun) -> Iterator[Finding]:
    """vLLM cannot load the model.

    ## Why it matters

    A worker starts the engine after the trainer has loaded its own copy, minutes into the job, and its error
    reaches the driver through two other processes. The smoke test starts the engine alone.

    ## How to fix

    If this happens with verl-doctor's own tiny model, the engine itself is at fault: see the cause. If you
    passed `--model`, try once without it: if that works, the model is at fault, because this vLLM does not
    support its architecture, its files are damaged, or memory is too small.
    """
    yield from broken_by("SMOKE108", run)
