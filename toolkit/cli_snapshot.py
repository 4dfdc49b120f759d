"""`verl-doctor snapshot FILE`: all that can be seen of a cluster on which the job works, kept for the day when it does not."""

from __future__ import annotations

import json
from pathlib import Path

import click

from verl_doctor.toolkit import output
from verl_doctor.toolkit.cli_options import (
    FileToWrite,
    force_option,
    job_options,
    node_options,
    target_options,
)
from verl_doctor.toolkit.node_request import AskedNodes
from verl_doctor.toolkit.progress import Progress
from verl_doctor.toolkit.session import open_session
from verl_doctor.toolkit.streams import nothing_on_stdout
from verl_doctor.toolkit.target import Options
from verl_doctor.toolkit.text import harmless

_LOST = 3


@click.command(epilog="Exit codes: 0 it was taken, 2 wrong usage, 3 a node did not answer.")
@click.argument("file", type=FileToWrite(output.FACTS), metavar="FILE")
@target_options
@job_options
@node_options
@force_option
@click.option("--deep", is_flag=True, help="Also what is tried out and takes seconds.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="How to say what was taken.",
)
def snapshot(*, file: Path, options: Options, nodes: AskedNodes | None, deep: bool, form: str) -> int:
    """Keep all facts of a cluster that works in FILE.

    It is what `compare` wants. With the launch script its configuration and variables are in it, with --cluster all nodes, equal ones once. The file is
    JSON, and what may be a secret is not in it; names of hosts, users and folders are. Other commands read it too: check
    --facts FILE, patches apply FILE.
    """
    from verl_doctor.toolkit import snapshot as kept  # noqa: PLC0415 - only this command needs it
    from verl_doctor.toolkit import snapshot_document  # noqa: PLC0415

    with nothing_on_stdout(), Progress() as progress:
        run = open_session(options, deep=deep)
        seen = kept.look(run, nodes, progress.say)
        text = kept.dump(seen, run.registry.collectors)
    output.write(file, text, private=True)
    said = snapshot_document.document(seen, file, len(text))
    if form == "json":
        print(json.dumps(said, indent=2))
    else:
        print("\n".join(map(harmless, snapshot_document.lines(said))))
    return _LOST if seen.nodes.missing else 0
