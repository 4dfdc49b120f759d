"""A click group that imports a command on first use, so that `guard` and `check` start fast."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from verl_doctor.toolkit.console.streams import NO_READER, give_up_stdout
from verl_doctor.toolkit.options.helpful_group import HelpfulGroup
from verl_doctor.toolkit.options.hints import replaced
from verl_doctor.toolkit.options.shared import SharedOption

_LAUNCH_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", ".py")
"""The suffixes of files that start a job, whether or not the file exists."""

Renamed = Mapping[str, Sequence[str]]
"""Commands of the previous release, each with its replacement."""


class Group(HelpfulGroup):
    """The commands of the doctor.

    `sections` are the commands of each part of the help, in order, `hidden` those that the help leaves out,
    and `renamed` those of the previous release.
    """

    def __init__(
        self,
        *arguments: Any,
        sections: Mapping[str, Mapping[str, str]],
        hidden: Sequence[str],
        renamed: Renamed,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._sections = sections
        self._hidden = hidden
        self._renamed = renamed

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. If its output has no reader, click would exit with 1, which means a verdict."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            give_up_stdout()
            ctx.exit(NO_READER)

    def visible(self) -> Mapping[str, str]:
        """Return the commands that the help lists, each with its help line."""
        return {name: line for commands in self._sections.values() for name, line in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all commands, loaded or not, including hidden ones."""
        return sorted({*super().list_commands(ctx), *self.visible(), *self._hidden})

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of the help without loading any command."""
        width = max(map(len, self.visible()))
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command, and load it on first use."""
        name = self._renamed[cmd_name][0] if cmd_name in self._renamed else cmd_name
        if name not in self.commands and (name in self.visible() or name in self._hidden):
            module = importlib.import_module(f"verl_doctor.toolkit.commands.{name}.command")
            self.add_command(prepared(getattr(module, name)))
        return super().get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command for the first word; a launch file in place of a command is checked."""
        name = args[0]
        if words := self._renamed.get(name):
            if not ctx.resilient_parsing:
                replaced(f"verl-doctor {name}", f"verl-doctor {' '.join(words)}")
            args = [*words, *args[1:]]
        elif name not in self.list_commands(ctx) and _is_launch_file(name):
            args = ["check", *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command, or the name of a launch file, without loading any command."""
        names = [
            CompletionItem(name, help=line)
            for name, line in self.visible().items()
            if name.startswith(incomplete)
        ]
        files = [] if incomplete.startswith("-") else [CompletionItem(incomplete, type="file")]
        return [*names, *files, *click.Command.shell_complete(self, ctx, incomplete)]


def _is_launch_file(word: str) -> bool:
    """Return whether a word names a file that starts a job, and not a command."""
    return not word.startswith("-") and (
        os.path.isfile(word) or word.lower().endswith(_LAUNCH_SUFFIXES) or os.sep in word
    )


def prepared(command: click.Command) -> click.Command:
    """Return a command whose help lists its own options first.

    It and its subcommands get -v if they lack it; with it `main` prints the traceback of a defect.
    """
    if isinstance(command, click.Group):
        for below in command.commands.values():
            prepared(below)
        return command
    if not any("-v" in option.opts for option in command.params):
        help_text = "Show the traceback if verl-doctor itself fails."
        command.params.append(
            SharedOption(["-v", "--verbose"], is_flag=True, expose_value=False, help=help_text)
        )
    command.params.sort(key=lambda option: isinstance(option, SharedOption))
    return command


@click.command("help")
@click.argument("names", nargs=-1, metavar="[COMMAND...]")
@click.pass_context
def help_command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of a command."""
    assert ctx.parent is not None  # noqa: S101 - it is a command of the group
    here, command = ctx.parent, ctx.parent.command
    for name in names:
        if not isinstance(command, click.Group):
            raise click.UsageError(f"{here.command_path} has no subcommands", here)
        _, below, _ = command.resolve_command(here, [name])
        if below is None:
            raise click.UsageError(f"No such command '{name}'", here)
        here, command = click.Context(below, info_name=below.name, parent=here), below
    click.echo(here.get_help(), file=sys.stdout)
