"""A click group that prints its help without arguments, and suggests commands for misspelt ones."""

from __future__ import annotations

import click


class HelpfulGroup(click.Group):
    """A group that prints its help without arguments, and suggests commands for a misspelt name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help for an empty command line.

        Releases of click differ in the stream and the exit code.
        """
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return `-h` and `--help`, also without the context of the main command.

        Click keeps the option that it makes first.
        """
        return ["-h", "--help"]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Raises click.UsageError with similar names."""
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            self._fail(ctx, name)
        return super().resolve_command(ctx, args)

    def _fail(self, ctx: click.Context, name: str) -> None:
        import difflib  # noqa: PLC0415 - only for a misspelt name

        near = difflib.get_close_matches(name.lower(), self.list_commands(ctx), n=2, cutoff=0.6)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        ctx.fail(f"No such command '{name}'{hint}")
