"""A complete plugin: a fact, a rule about it, and a fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.change import Change, NewFile, fix
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check


@dataclass(frozen=True)
class Welcome:
    """The file that greets users in the folder where they work."""

    path: str
    exists: bool


@collector(timeout=5)
def welcome(machine: Machine) -> Welcome:
    """Look for WELCOME in the current folder."""
    path = machine.cwd / "WELCOME"
    return Welcome(str(path), path.exists())


@check(
    "MOTD101",
    severity="error",
    examples=[
        Example("the file is there", (Welcome("/job/WELCOME", exists=True),)),
        Example("the file is missing", (Welcome("/job/WELCOME", exists=False),), expect="nobody is welcome"),
    ],
)
def no_welcome(welcome: Welcome) -> Iterator[Finding]:
    """Nobody is welcome here.

    ## Why it matters

    It is rude.

    ## How to fix

    Write a file named WELCOME.
    """
    if not welcome.exists:
        yield Finding(
            "nobody is welcome in this folder",
            Evidence("no such file", wanted="a file", read_from=welcome.path),
            Location(welcome.path),
            remedy="write a file named WELCOME",
            subject=Subject("file", welcome.path),
            fix="write-welcome",
        )


@fix("write-welcome", repairs="MOTD101", safety="safe")
def write_welcome(finding: Finding, welcome: Welcome) -> list[Change]:
    """Write the file that greets users."""
    return [NewFile(Path(welcome.path), b"welcome\n")]
