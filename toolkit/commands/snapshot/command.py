"""`verl-doctor snapshot FILE`: save all facts of a cluster on which the job works, to compare with later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.options.node_options import node_options
from verl_doctor.toolkit.options.shared import shared_option
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import FileToWrite, force_option
from verl_doctor.toolkit.target import Options


@click.command(epilog="Exit codes: 0 written, 2 wrong usage, 3 a node did not respond.")
@click.argument("file", type=FileToWrite(output.FACTS), metavar="FILE")
@target_options
@job_options
@node_options
@force_option
@shared_option("--deep", is_flag=True, help="Also run checks that take seconds.")
@shared_option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="The output format.",
)
def snapshot(*, file: Path, options: Options, nodes: RequestedNodes | None, deep: bool, form: str) -> int:
    """Save all facts of a working cluster to FILE.

    `compare` reads FILE, and so do check --facts FILE and patches apply FILE. With a launch script it
    contains the job's configuration and variables, with --cluster all nodes. The file is JSON. It contains
    names of hosts, users and folders, but nothing that may be a secret.
    """
    from verl_doctor.toolkit.commands.snapshot.answer import SnapshotAnswer  # noqa: PLC0415 - only this command needs it
    from verl_doctor.toolkit.engine.examination import Request, examine  # noqa: PLC0415 - see above
    from verl_doctor.toolkit.snapshot import snapshot as kept  # noqa: PLC0415 - see above
    from verl_doctor.toolkit.snapshot.examination import WholeSnapshot  # noqa: PLC0415 - see above
    from verl_doctor.toolkit.snapshot.nodes import FoldedNodes  # noqa: PLC0415 - see above

    with nothing_on_stdout(), Progress() as progress:
        run = open_session(options, deep=deep)
        seen = kept.look(run, nodes, progress.show)
        text = kept.dump(seen, run.registry.collectors)
        progress.show("checking")
        report = examine(Request(run, WholeSnapshot(replace(seen, nodes=FoldedNodes())))).report
    output.write(file, text, private=True)
    named = () if nodes is None else nodes.arguments
    return show(SnapshotAnswer(seen, report, file, len(text), named), form, None)
