"""The reference of the command line: a page for each command, made from its options, and the exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from verl_doctor.toolkit.cli.main import cli

_WIDTH = 78


def pages() -> dict[str, str]:
    """All of them by path."""
    context = click.Context(cli, info_name="verl-doctor", **cli.context_settings)
    shown = {name: command for name in cli.list_commands(context) if (command := _visible(context, name))}
    made = {f"reference/commands/{name}.md": page(name, command) for name, command in shown.items()}
    return {**made, "reference/commands/index.md": index(shown)}


def _visible(context: click.Context, name: str) -> click.Command | None:
    command = cli.get_command(context, name)
    return None if command is None or command.hidden else command


def index(shown: dict[str, click.Command]) -> str:
    """The list of commands."""
    lines = ["# Commands", "", "These are the commands that `verl-doctor --help` lists.", ""]
    lines += ["| command | what it does |", "|---|---|"]
    for name, command in shown.items():
        lines.append(f"| [{name}]({name}.md) | {command.get_short_help_str(200)} |")
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *shown, "```", ""])


def page(name: str, command: click.Command) -> str:
    """One command, with its subcommands."""
    parent = click.Context(cli, info_name="verl-doctor", **cli.context_settings)
    return "\n".join([f"# verl-doctor {name}", "", *_help(command, parent, name), ""])


def _help(command: click.Command, parent: click.Context, name: str) -> Iterator[str]:
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    yield from ("```text", command.get_help(context), "```", "")
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            if inner is not None and not inner.hidden:
                yield from (f"## {name} {below}", "", *_help(inner, context, below))
