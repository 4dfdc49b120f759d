"""SMOKE108: vLLM does not load the model."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Finding, check


@check(
    "SMOKE108",
    phase="engine",
    cost="slow",
    examples=lambda: examples_of(
        "SMOKE108", 4, "vLLM", "load the model: SafetensorError: Error while deserializing header"
    ),
)
def vllm_does_not_load_the_model(run: SmokeRun) -> Iterator[Finding]:
    """vLLM cannot load the model.

    ## Why it matters

    A worker starts the engine after the trainer has loaded its own copy, minutes into the job, and its error
    reaches the driver through two other processes. The smoke test starts the engine alone.

    ## How to fix

    With a tiny model of the doctor's own the engine itself is at fault: see the cause. With `--model` try
    once without: if that goes well, it is the model: an architecture that this vLLM does not support, damaged
    files, or too little memory.
    """
    yield from broken_by("SMOKE108", run)
