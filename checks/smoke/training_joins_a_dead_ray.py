"""SMOKE155: the job is set to join a Ray that does not respond."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE155", 5, "a step of verl", "the Ray cluster that it tried to join does not respond"
    )


@check("SMOKE155", phase="ray", cost="slow", examples=_examples)
def training_joins_a_dead_ray(run: SmokeRun) -> Iterator[Finding]:
    """The job is set to join a Ray that does not respond.

    ## Why it matters

    An address in `ray_kwargs.ray_init.address` or in a file that a killed driver left behind names a cluster
    that no longer exists. Ray retries for minutes, and verl prints nothing meanwhile.

    ## How to fix

    Remove the address, or start a Ray there; RAY101 to RAY104 show where it is set. `verl-doctor clean
    --apply` removes the leftovers of dead clusters.
    """
    yield from broken_by("SMOKE155", run)
