"""SMOKE150: verl imports a package that is not installed and that it does not always declare."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE150", 5, "a step of verl", "verl 0.9.1 imports transfer_queue, which is not installed"
    )


@check("SMOKE150", phase="import", cost="slow", examples=_examples)
def verl_lacks_its_queue(run: SmokeRun) -> Iterator[Finding]:
    """verl imports a package that is not installed and that it does not always declare.

    ## Why it matters

    The trainer of verl 0.9 keeps its samples in TransferQueue, which only the extra `verl-core` of the
    package requires: after a plain `pip install verl` each job ends half a minute after its start, inside
    Ray, with *No module named 'transfer_queue'*.

    ## How to fix

    Install what the smoke test names into the environment of the job, on every node.
    """
    yield from broken_by("SMOKE150", run)
