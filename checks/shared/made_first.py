"""Shared by the rules about missing files and packages, which an earlier program of the script may bring."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.launch import Launch, may_be_made
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Finding


def unless_made(finding: Finding, path: str, launch: Launch | Unknown) -> Finding:
    """The finding that this path is missing.

    It is a warning without a correction if the script may create the path first.
    """
    return _unless(finding, "creates it") if may_be_made(launch, path) else finding


def unless_installed(finding: Finding, launch: Launch | Unknown) -> Finding:
    """The finding that a package is missing.

    It is a warning without a correction if the script may install the package first, or starts a container.
    """
    if isinstance(launch, Unknown) or not (launch.installs or launch.in_container):
        return finding
    return (
        _unless(finding, "installs it") if launch.installs else replace(finding, severity="warning", stops=())
    )


def _unless(finding: Finding, does: str) -> Finding:
    message = f"{finding.message}, unless a command of the script {does} first"
    return replace(finding, message=message, severity="warning", stops=(), fix=None, correction=None)
