"""The command `demo`."""

from __future__ import annotations

import click

from verl_doctor.toolkit.commands.demo import demo as miniature


@click.command()
@click.option("--keep", is_flag=True, help="Keep the temporary folder and print its path.")
def demo(*, keep: bool) -> int:
    """Watch check, fix and undo on a miniature environment."""
    return miniature.run(keep=keep)
