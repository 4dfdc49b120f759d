"""Shared by the rules about missing files: a program that the script calls before the job may create them."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.launch import Launch, may_be_made
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Finding


def unless_made(finding: Finding, path: str, launch: Launch | Unknown) -> Finding:
    """The finding that this path is missing; a warning without a correction if the script may create it first."""
    if not may_be_made(launch, path):
        return finding
    message = f"{finding.message}, unless a command of the script creates it first"
    return replace(finding, message=message, severity="warning", stops=(), fix=None, correction=None)
