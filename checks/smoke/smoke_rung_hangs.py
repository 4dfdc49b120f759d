"""SMOKE111: a rung of the smoke test does not end."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of("SMOKE111", 3, "Ray", "start Ray: it did not end within 300 s")


@check("SMOKE111", cost="slow", examples=_examples)
def smoke_rung_hangs(run: SmokeRun) -> Iterator[Finding]:
    """A rung of the smoke test never ends.

    ## Why it matters

    What hangs here also hangs in the job, without a time limit: a process waits for another that has ended,
    for resources that Ray does not have, or for an address on which nothing listens. The step before it shows
    where.

    ## How to fix

    The end of the log shows the last step. A slow disk is not a hang: the times of the earlier steps reveal
    it, `verl-doctor warmup` reads everything once, and `--budget` allows more time. Compiling kernels with
    nvcc is not a hang either; CUDA130 reports it, and `verl-doctor warmup --engine` compiles them once.
    """
    yield from broken_by("SMOKE111", run)
