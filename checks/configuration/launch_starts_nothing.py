"""CFG105: no command that starts verl was found in what was named."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.launch_examples import FILES, GOOD, IMAGE
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, Unjudged, check
from verl_doctor.toolkit.text import listed

_STARTS = ("shell script", "command line")


def _unjudged(launch: Launch) -> tuple[Unjudged, ...]:
    starting = _starting(launch)
    if launch.command is not None or not starting:
        return ()
    why = "no command that starts verl was found"
    if launch.unread:
        path, _, rest = launch.unread[0].partition(":")
        why += f"; {path.rpartition('/')[2]}:{rest}"
    return (Unjudged("the job", why, Location(starting[0]), (EVERY_JOB,)),)


def _examples() -> list[Example]:
    return [
        Example("the script starts training", (GOOD,)),
        Example("a Dockerfile by itself starts nothing", (Launch(IMAGE),)),
        Example("a script that prepares data", (Launch(FILES),), "no command that starts verl was found"),
    ]


@check("CFG105", requires=("CFG116",), severity="warning", unjudged=_unjudged, examples=_examples)
def launch_starts_nothing(launch: Launch) -> Iterator[Finding]:
    """No command that starts verl was found in the given files.

    ## Why it matters
    Without the settings of the job, the rules about them have nothing to check, so there is no verdict on the
    job.

    ## How to fix
    Name the script that starts training, or give its command: `verl-doctor check -- python3 -m
    verl.trainer.main_ppo ...`. Scripts are read without being run, so a command assembled from another
    program's output is not seen.
    """
    starting = _starting(launch)
    if starting and launch.command is None:
        yield Finding(
            f"no command that starts verl was found in {listed(starting, 3)}",
            Evidence(
                found="no python -m verl..., and no Python program with overrides such as trainer.nnodes=1",
                wanted="a command that starts training",
            ),
            location=Location(starting[0]),
            remedy="name the script that starts training, or the command itself after --",
            subject=Subject("file", starting[0]),
        )


def _starting(launch: Launch) -> list[str]:
    """Return the named files that should start the job."""
    return [path for path, kind in launch.files if kind in _STARTS]
