"""`verl-doctor clean`: what dead jobs have left behind, and its removal."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.leftover import Kind
from verl_doctor.toolkit.options.options import (
    Duration,
    answer_options,
    job_options,
    show_all_option,
    target_options,
)
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.target import Options, UsageError, journal_homes


class Kinds(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """Kinds of leftovers, separated by commas."""

    name = "kinds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split at the commas."""
        words = tuple(word.strip().lower() for word in str(value).split(",") if word.strip())
        strangers = [word for word in words if word not in get_args(Kind)]
        if strangers or not words:
            self.fail(
                f"{', '.join(strangers) or 'nothing'} is no kind; there are {', '.join(get_args(Kind))}",
                param,
                ctx,
            )
        return words


@click.command(
    epilog="Exit codes: 0 nothing is left over, 1 something is, 2 wrong usage, 3 not all could be looked at. "
    "With --apply: 0 all that was found is removed, 1 something is still there."
)
@target_options
@job_options
@click.option(
    "--apply", "apply_them", is_flag=True, help="Remove them, each after a fresh look. Cannot be undone."
)
@click.option(
    "--only",
    "kinds",
    type=Kinds(),
    multiple=True,
    metavar="KINDS",
    help='Only these kinds: "session folder,socket".',
)
@click.option(
    "--older-than",
    type=Duration(),
    default="0s",
    metavar="AGE",
    help="Only what has not changed for this long: 30m, 12h, 2d.",
)
@answer_options
@show_all_option
def clean(
    *,
    options: Options,
    apply_them: bool,
    kinds: tuple[tuple[Kind, ...], ...],
    older_than: float,
    form: str,
    file: Path | None,
    verbose: bool,
) -> int:
    """Show what dead jobs have left behind, and what proves it.

    Session and spill folders, shared memory, sockets, processes, and what they hold in Ray. What runs, what may be
    starting, and what cannot be seen is kept.
    """
    from verl_doctor.toolkit.commands.clean.answer import CleanAnswer  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.commands.clean.clean import Cleaned, Found, chosen, find, remove_all  # noqa: PLC0415

    with nothing_on_stdout(), Progress() as progress:
        progress.say("looking for leftovers")
        run = open_session(options)
        wanted = tuple(kind for some in kinds for kind in some)

        def look() -> Found:
            return chosen(
                find(run.registry.collectors, run.look(), run.target.ray_address), wanted, older_than
            )

        home = journal_homes(run.target)[1]
        try:
            cleaned = remove_all(look, run.machine, home, progress.say) if apply_them else Cleaned(look())
        except Refused as error:
            raise UsageError(str(error)) from None
    return show(CleanAnswer(cleaned, verbose=verbose), form, file)
