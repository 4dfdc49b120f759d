"""`verl-doctor compare OLD [NEW]`: what differs from the cluster on which the job worked."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import click

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.options.node_options import node_options
from verl_doctor.toolkit.options.shared import shared_option
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import PATH
from verl_doctor.toolkit.options.view_options import answer_options, show_all_option
from verl_doctor.toolkit.target import Options, UsageError

_BEGINNING = 200  # bytes


@click.command(
    epilog=(
        "Exit codes: 0 no difference matters, 1 a difference matters, 2 wrong usage, 3 something could not "
        "be read."
    )
)
@click.argument("old", type=PATH, metavar="OLD")
@target_options
@job_options
@node_options
@shared_option("--deep", is_flag=True, help="Also run checks that take seconds, on this side.")
@show_all_option
@answer_options
def compare(
    *,
    old: Path,
    options: Options,
    nodes: RequestedNodes | None,
    deep: bool,
    verbose: bool,
    form: str,
    file: Path | None,
) -> int:
    """Show what differs from OLD; what breaks the job comes first.

    OLD and NEW are files written by verl-doctor snapshot, facts files, or folders of these. Without NEW, this
    machine is examined now, and with --cluster also the nodes of its cluster. A launch script after OLD
    belongs to this machine.
    """
    from verl_doctor.toolkit.commands.compare.answer import ComparisonAnswer  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.comparison.judge import compared  # noqa: PLC0415
    from verl_doctor.toolkit.snapshot import snapshot  # noqa: PLC0415 - only this command needs them

    new = _new(options)
    if new is not None and (nodes is not None or deep or options.launch[1:]):
        raise UsageError(f"OLD is compared with {new}: options that examine this machine do not apply")
    with nothing_on_stdout(), Progress() as progress:
        run = open_session(replace(options, launch=()) if new else options, deep=deep)
        before = snapshot.read(old, run.registry.collectors)
        after = (
            snapshot.look(run, nodes, progress.show)
            if new is None
            else snapshot.read(new, run.registry.collectors)
        )
        progress.show("comparing")
        found = compared(before, after, run)
    return show(ComparisonAnswer(found, every=verbose), form, file)


for _parameter in compare.params:
    if _parameter.name == "launch":
        _parameter.metavar = "[NEW | LAUNCH_SCRIPT | -- COMMAND...]"


def _new(options: Options) -> Path | None:
    """The first word after OLD if it is a snapshot rather than a launch script."""
    if not options.launch:
        return None
    path = Path(options.launch[0])
    if path.suffix == ".json" or os.path.isdir(path):
        return path
    if os.path.isfile(path):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if b'"schema_version"' in file.read(_BEGINNING):
                return path
    return None
