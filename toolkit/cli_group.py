"""A group of commands that are loaded when they are asked for: `guard` is through, and `check` says its first line, the sooner."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from verl_doctor.toolkit.streams import NOBODY_READS, give_up_stdout

EPILOG = "Exit codes: 0 nothing failed, 1 failures found, 2 wrong usage, 3 could not check."


class Group(click.Group):
    """`elsewhere` names the module of each command that is not loaded yet, `sections` the commands of each part of the help, in order."""

    def __init__(
        self,
        *arguments: Any,
        elsewhere: Mapping[str, str],
        sections: Mapping[str, Mapping[str, str]],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._elsewhere = elsewhere
        self._sections = sections

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Where nobody reads its answer click would end with 1, which is an answer."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            give_up_stdout()
            ctx.exit(NOBODY_READS)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all, loaded or not."""
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the parts of the help. Nothing is loaded for it."""
        width = max(len(name) for commands in self._sections.values() for name in commands)
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), told) for name, told in commands.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command, and load it when it was not asked for before."""
        if cmd_name not in self.commands and cmd_name in self._elsewhere:
            module = importlib.import_module(f"verl_doctor.toolkit.{self._elsewhere[cmd_name]}")
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)
