"""A complete plugin for a cluster: a fact with a rule and a fix, and a rule about a setting of the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.change import Change, NewFile, fix
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.public_facts import Configuration
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.testing import configuration_of


@dataclass(frozen=True)
class Owner:
    """The file that names the owner of the current folder."""

    path: str
    exists: bool


@collector(timeout=5)
def owner(machine: Machine) -> Owner:
    """Look for OWNER in the current folder."""
    path = machine.cwd / "OWNER"
    return Owner(path=str(path), exists=path.exists())


def _folders() -> list[Example]:
    return [
        Example("the file exists", (Owner(path="/job/OWNER", exists=True),)),
        Example("the file is missing", (Owner(path="/job/OWNER", exists=False),), expect="no OWNER file"),
    ]


@check("TEAM101", examples=_folders)
def folder_without_owner(owner: Owner) -> Iterator[Finding]:
    """The folder of the job has no OWNER file.

    ## Why it matters

    Every night, our cluster removes folders on /scratch that nobody owns.

    ## How to fix

    Write a file named OWNER that contains the name of your team.
    """
    if not owner.exists:
        yield Finding(
            "this folder has no OWNER file",
            Evidence("no such file", wanted="a file", read_from=owner.path),
            Location(owner.path),
            remedy="write the name of your team into a file named OWNER",
            subject=Subject("file", owner.path),
            fix="write-owner",
        )


@fix("write-owner", repairs="TEAM101", safety="safe")
def write_owner(finding: Finding, owner: Owner) -> list[Change]:
    """Write the file that names the owner."""
    return [NewFile(Path(owner.path), b"research\n")]


_PROJECT = "trainer.project_name"
_DEFAULTS = {"trainer": {"project_name": "verl_examples"}}


def _scripts() -> list[Example]:
    return [
        Example("a name of one's own", (configuration_of(_DEFAULTS, f"{_PROJECT}=maths"),)),
        Example("verl's default", (configuration_of(_DEFAULTS),), expect="verl_examples"),
    ]


@check("TEAM102", severity="warning", examples=_scripts)
def project_without_name(configuration: Configuration) -> Iterator[Finding]:
    """The job uses verl's default project name.

    ## Why it matters

    Runs of all teams end up in one project of the tracker.

    ## How to fix

    Set `trainer.project_name` in the launch script.
    """
    if configuration.override_of(_PROJECT) is None:
        yield Finding(
            f"the runs of this job go to the project {configuration.get(_PROJECT)}",
            Evidence("not set", wanted="a project of your team", read_from=configuration.folder),
            remedy=f"set {_PROJECT} in the launch script",
            subject=Subject("setting", _PROJECT),
        )
