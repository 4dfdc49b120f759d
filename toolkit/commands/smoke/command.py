"""`verl-doctor smoke`: a ladder of trials from import to training step, and the first rung that breaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.options.shared import refuses, shared_option
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import OTHER_TREES, PATH, Duration
from verl_doctor.toolkit.options.view_options import answer_options
from verl_doctor.toolkit.target import Options, UsageError

_LAST = 5


@refuses(
    *OTHER_TREES,
    why="smoke runs what the interpreter imports; name one with --python in which that tree is installed",
)
@refuses("--ray-address", why="smoke starts its own Ray; remove it")
@click.command(
    epilog=(
        "Exit codes: 0 every rung that applies here passes, 1 one fails, 2 wrong usage, 3 not everything "
        "was tried."
    )
)
@target_options
@job_options
@click.option("--script", "named", type=PATH, metavar="FILE", help="Use this launch script.")
@click.option("--rung", type=click.IntRange(1, _LAST), metavar="N", help="Run only this rung.")
@click.option("--up-to", type=click.IntRange(1, _LAST), metavar="N", help="Run up to this rung.")
@click.option("--cpu", is_flag=True, help="Use the CPU even if there is a GPU.")
@shared_option(
    "--budget",
    type=Duration(),
    default="30m",
    show_default=True,
    metavar="TIME",
    help="The time limit for all rungs together.",
)
@click.option("--keep", is_flag=True, help="Keep all logs, not only those of a rung that fails.")
@answer_options
def smoke(
    *,
    options: Options,
    named: Path | None,
    rung: int | None,
    up_to: int | None,
    cpu: bool,
    budget: float,
    keep: bool,
    form: str,
    file: Path | None,
) -> int:
    """Try imports, GPUs, Ray, vLLM and one training step, up to the first that fails.

    The rungs: 1 imports and files, 2 devices, 3 Ray, 4 vLLM, 5 one training step of verl. Each runs in child
    processes with a time limit and their own Ray, and cleans up. Without a GPU it runs on the CPU, as far as
    the installed packages allow.
    """
    from verl_doctor.toolkit.commands.smoke.answer import SmokeAnswer  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.commands.smoke.smoke import SmokeRequest, climb  # noqa: PLC0415

    if rung is not None and up_to is not None:
        raise UsageError("choose either --rung or --up-to")
    numbers = (rung,) if rung is not None else tuple(range(1, (up_to or _LAST) + 1))
    if named is not None:
        options = replace(options, launch=(str(named), *options.launch))
    with nothing_on_stdout(), Progress() as progress:
        run = open_session(options).at_cost("slow")
        climbed, report = climb(run, SmokeRequest(numbers, cpu, budget, keep), progress)
    return show(SmokeAnswer(climbed, report), form, file)
