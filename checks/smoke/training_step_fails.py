"""SMOKE156: verl does not get through one step of training."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of("SMOKE156", 5, "a step of verl", "KeyError: 'answer'")


@check("SMOKE156", phase="first update", cost="slow", examples=_examples)
def training_step_fails(run: SmokeRun) -> Iterator[Finding]:
    """verl does not complete one step of training.

    ## Why it matters

    The same step fails in the real job, after it has waited for its GPUs and loaded its model. The cause
    shown is the first error of any process, even if the last line of the log is about another process.

    ## How to fix

    The traceback shows where it was raised: in a file of yours (reward, tools, data), in verl, or in a
    library. The output lists the settings that the rehearsal replaced: they are not faults of the job.
    """
    yield from broken_by("SMOKE156", run)
