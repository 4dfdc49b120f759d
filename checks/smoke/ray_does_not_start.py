"""SMOKE106: Ray does not start."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE106", 3, "Ray", "start Ray: OSError: AF_UNIX path length cannot exceed 107 bytes"
    )


@check("SMOKE106", phase="ray", cost="slow", examples=_examples)
def ray_does_not_start(run: SmokeRun) -> Iterator[Finding]:
    """Ray does not start.

    ## Why it matters

    verl's driver starts Ray before anything else, or joins one that was started in the same way. An error
    here stops every job on this machine. The smoke test starts its own Ray in a private folder, whose path is
    as long as the job's (RAY_TMPDIR, TMPDIR), and touches no other Ray.

    ## How to fix

    The cause names what Ray lacks: a shorter folder (`RAY_TMPDIR`), room on its disk, processes or open files
    (HOST101 to HOST119), a free port. The log folder has what each of Ray's processes wrote.
    """
    yield from broken_by("SMOKE106", run)
