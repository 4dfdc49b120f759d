"""`verl-doctor clean`: show and remove what dead jobs left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from verl_doctor.toolkit.console.progress import Progress, announce
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.leftover import Kind
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import Duration
from verl_doctor.toolkit.options.view_options import answer_options, show_all_option
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.target import Options, UsageError, journal_homes

if TYPE_CHECKING:
    from verl_doctor.toolkit.commands.clean.clean import Run
    from verl_doctor.toolkit.engine.collect import Collection as Facts


class Kinds(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """Kinds of leftovers, separated by commas."""

    name = "kinds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split at the commas."""
        words = tuple(word.strip().lower() for word in str(value).split(",") if word.strip())
        unknown = [word for word in words if word not in get_args(Kind)]
        if unknown or not words:
            self.fail(
                f"unknown kind: {', '.join(unknown) or 'nothing'}; expected {', '.join(get_args(Kind))}",
                param,
                ctx,
            )
        return words


@click.command(
    epilog=(
        "Exit codes: 0 nothing is left over, 1 something is, 2 wrong usage, 3 not everything could be "
        "examined. With --apply: 0 everything found was removed, 1 something remains. With --run: the job's "
        "exit code."
    )
)
@target_options
@job_options
@click.option(
    "--apply", "apply_them", is_flag=True, help="Remove it, each item after a fresh check. Cannot be undone."
)
@click.option(
    "--run",
    "run_it",
    is_flag=True,
    help="Run the job, and report on stderr what it left behind.",
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
    help="Only what has not changed for at least this long: 30m, 12h, 2d.",
)
@answer_options
@show_all_option
def clean(
    *,
    options: Options,
    apply_them: bool,
    run_it: bool,
    kinds: tuple[tuple[Kind, ...], ...],
    older_than: float,
    form: str,
    file: Path | None,
    verbose: bool,
) -> int:
    """Show what dead jobs left behind, with the proof.

    Covers session and spill folders, shared memory, sockets, processes, and resources in Ray. Whatever is
    running, may be starting or cannot be examined is kept.
    """
    from verl_doctor.toolkit.collectors.leftovers.file_judgement import GRACE  # noqa: PLC0415 - see below
    from verl_doctor.toolkit.commands.clean.answer import CleanAnswer  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.commands.clean.clean import Cleaned, Found, chosen, find, remove_all  # noqa: PLC0415
    from verl_doctor.toolkit.commands.clean.left_by_job import Job  # noqa: PLC0415

    if run_it and form == "json" and file is None:
        raise UsageError("--json with --run: stdout and stderr are the job's; name a file with --output")
    command = _command(options.launch) if run_it else ()
    wanted = tuple(kind for some in kinds for kind in some)
    run: Run | None = None
    with nothing_on_stdout(), Progress() as progress:
        progress.show("looking for leftovers")
        session = open_session(options)

        def found_in(facts: Facts) -> Found:
            found = find(session.registry.collectors, facts, session.target.ray_address)
            return chosen(found, wanted, older_than)

        def look() -> Found:
            return found_in(session.look())

        if run_it:
            job = Job(session.look, found_in, session.machine)
    if run_it:  # its output is its own: stdout is what it was
        try:
            ended = job.run(command, announce)
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from None
    with nothing_on_stdout(), Progress() as progress:
        progress.show("looking for leftovers")
        if run_it:
            run, left = job.completed(ended)
            if apply_them and (left.leftovers or left.kept):
                progress.done("verl-doctor waits for a minute: what has just been changed is never removed")
                time.sleep(GRACE)
            look = job.left
        try:
            cleaned = (
                remove_all(look, session.machine, journal_homes(session.target)[1], progress.show)
                if apply_them
                else Cleaned(left if run_it else look())
            )
        except Refused as error:
            raise UsageError(str(error)) from None
    answer = CleanAnswer(replace(cleaned, run=run), verbose=verbose)
    with nothing_on_stdout() if run_it else contextlib.nullcontext():
        return show(answer, form, file)


def _command(launch: tuple[str, ...]) -> tuple[str, ...]:
    """What a shell would start: a program, or a script by its interpreter.

    Raises UsageError when nothing can be started.
    """
    if not launch:
        raise UsageError("--run: name the launch script to run, or a command after --")
    if shutil.which(launch[0]):
        return launch
    if not os.path.isfile(launch[0]):
        raise UsageError(
            f"{launch[0]}: there is no such command or script; name what starts the job after --"
        )
    return ("bash" if Path(launch[0]).suffix != ".py" else "python", *launch)
