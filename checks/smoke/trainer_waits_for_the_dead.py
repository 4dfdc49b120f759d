"""SMOKE154: a process of the job failed, and the trainer waits for it forever."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE154",
        5,
        "a step of verl",
        "AttributeError: weight_loader; a process of the job failed, and there was no output for 46 s",
    )


@check("SMOKE154", phase="workers", cost="slow", examples=_examples)
def trainer_waits_for_the_dead(run: SmokeRun) -> Iterator[Finding]:
    """A process of the job failed, and the trainer waits for it forever.

    ## Why it matters

    The trainer calls its workers and waits for their results without a time limit. A worker whose engine has
    died never returns, and the job holds its GPUs until you notice. The cause is the dead process's message,
    which may be far above the end of the log.

    ## How to fix

    Repair what the cause names. In a running job `verl-doctor actors` shows which ranks are dead.
    """
    yield from broken_by("SMOKE154", run)
