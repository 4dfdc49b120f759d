"""SMOKE112: a rung of the smoke test cannot be tried."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of("SMOKE112", 4, "vLLM", "verl's data columns are unknown")


@check("SMOKE112", cost="slow", examples=_examples)
def smoke_cannot_be_tried(run: SmokeRun) -> Iterator[Finding]:
    """A rung of the smoke test cannot be tried.

    ## Why it matters

    The test itself could not be set up: no process could be started, or no tiny model and data could be
    written. That shows little about the job.

    ## How to fix

    The cause names what is missing. With `--model` and `--data` no tiny files are needed.
    """
    yield from broken_by("SMOKE112", run)
