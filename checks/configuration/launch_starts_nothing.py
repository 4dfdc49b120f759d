"""CFG105: no command that starts verl was found in what was named."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.launch_examples import FILES, GOOD, IMAGE
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_STARTS = ("shell script", "command line")


@check(
    "CFG105",
    requires=("CFG116",),
    severity="warning",
    examples=lambda: [
        Example("it starts training", (GOOD,)),
        Example("a Dockerfile alone starts nothing", (Launch(IMAGE),)),
        Example("a script that prepares data", (Launch(FILES),), "no command that starts verl was found"),
    ],
)
def launch_starts_nothing(launch: Launch) -> Iterator[Finding]:
    """No command that starts verl was found in the given files.

    ## Why it matters
    Without the settings of the job, the rules about them have nothing to judge.

    ## How to fix
    Name the script that starts training, or give its command: `verl-doctor check -- python3 -m
    verl.trainer.main_ppo ...`. Scripts are read without being run, so a command assembled from another
    program's output is not seen.
    """
    starting = [path for path, kind in launch.files if kind in _STARTS]
    if starting and launch.command is None:
        yield Finding(
            f"no command that starts verl was found in {listed(starting, 3)}",
            Evidence(
                found="no python -m verl..., and no Python program with overrides such as trainer.nnodes=1",
                wanted="a command that starts training",
            ),
            location=Location(starting[0]),
            remedy="name the script that starts training, or the command itself behind --",
            subject=Subject("file", starting[0]),
        )
