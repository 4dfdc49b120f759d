"""Every command that the documentation shows has the options that it is shown with."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import click
import pytest
from support.places import ROOT

from verl_doctor.toolkit.cli.main import cli
from verl_doctor.toolkit.commands.explain.topics import TOPICS, page

TOP = ROOT
_BLOCK = re.compile(r"```(?:sh|dockerfile)\n(.*?)```", re.DOTALL)
_INLINE = re.compile(r"`(verl-doctor [^`]+)`")
_BEHIND = re.compile(r"\s(?:\|\|?|&&|;|>>?|2>)\s.*")


def shown() -> Iterator[tuple[str, str]]:
    """Where a command is shown, and its words."""
    pages = {name: page(name) for name in TOPICS if name != "variables"}
    written = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=TOP, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    pages |= {
        name: (TOP / name).read_text("utf-8")
        for name in written
        if not name.startswith("tests/") and name != "CHANGELOG.md"
    }
    for name, text in pages.items():
        lines = [line for block in _BLOCK.findall(text) for line in block.splitlines()]
        for line in [*lines, *_INLINE.findall(text)]:
            plain = re.sub(r"#.*", "", line) if line in lines else line
            if (at := plain.find("verl-doctor ")) >= 0 and '"verl-doctor' not in plain:
                yield name, _BEHIND.sub("", plain[at:])


def test_every_documented_command_exists() -> None:
    lines = sorted(set(shown()))
    assert len(lines) > 200
    for where, line in lines:
        words = shlex.split(line)[1:]
        command: click.Command = cli
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            below = command.get_command(click.Context(command), words.pop(0))
            assert below is not None, f"{where}: {line}"
            command = below
        try:
            command.make_parser(click.Context(command, **cli.context_settings)).parse_args(words)
        except click.ClickException as error:
            pytest.fail(f"{where}: {line}: {error.format_message()}")


def test_help_lists_or_hides_each_command() -> None:
    hidden = {"demo", "environment", "help", "sites", "tiny"}
    assert sorted({*cli.visible(), *hidden}) == cli.list_commands(click.Context(cli))
