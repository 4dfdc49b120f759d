"""SMOKE152: Hydra refuses the configuration of the job."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE152", 5, "a step of verl", "Hydra refuses the configuration: no such group: model_engine=x"
    )


@check("SMOKE152", phase="composition", cost="slow", examples=_examples)
def rehearsal_configuration_refused(run: SmokeRun) -> Iterator[Finding]:
    """Hydra refuses the configuration of the job.

    ## Why it matters

    The program stops before it does anything. The message names the group, the file or the value that Hydra
    refuses.

    ## How to fix

    The rules CFG101 to CFG118 name the word of the launch script: `verl-doctor check run.sh`.
    """
    yield from broken_by("SMOKE152", run)
