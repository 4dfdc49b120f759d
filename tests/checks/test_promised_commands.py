"""Every command named in a remedy exists."""

from __future__ import annotations

import re

import click

from verl_doctor.toolkit.cli.main import cli
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.testing import run_check

KNOWN = registry.load()
# "verl-doctor does" is not a command: commands are in backticks, or begin a remedy.
_COMMAND = re.compile(r"verl-doctor ([a-z]+(?: [a-z]+)?)")


def documentation_of(check: Check) -> str:
    """The documentation's code, and the remedies of all examples."""
    findings = [
        finding for example in check.examples for finding in run_check(check, *example.facts).findings
    ]
    code = re.findall(r"`([^`]+)`", check.documentation)
    return "\n".join([*code, *(finding.remedy for finding in findings)])


def test_every_command_named_by_a_rule_exists() -> None:
    for check in KNOWN.checks:
        for words in _COMMAND.findall(documentation_of(check)):
            command: click.Command = cli
            for word in words.split():
                if isinstance(command, click.Group):
                    there = command.get_command(click.Context(command), word)
                    assert there is not None, f"{check.code} names: verl-doctor {words}"
                    command = there
