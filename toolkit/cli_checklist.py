"""The command `checklist`: the steps of moving to another cluster."""

from __future__ import annotations

import json
import sys

import click

from verl_doctor.toolkit import checklist as migration
from verl_doctor.toolkit import render
from verl_doctor.toolkit.cli_options import job_options, target_options
from verl_doctor.toolkit.fact_markers import Markers
from verl_doctor.toolkit.progress import Progress
from verl_doctor.toolkit.session import open_session
from verl_doctor.toolkit.streams import nothing_on_stdout
from verl_doctor.toolkit.target import Options
from verl_doctor.toolkit.text import harmless


@click.command(epilog="Exit codes: 0 no step failed, 1 a step failed, 3 a step could not be judged.")
@target_options
@job_options
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "json")),
    default="text",
    show_default=True,
    help="How to say it.",
)
def checklist(*, options: Options, form: str) -> int:
    """List the steps of moving to another cluster with their state."""
    with nothing_on_stdout(), Progress() as progress:
        run = open_session(options)
        collection = run.look()
        report = run.check(collection, progress.say)
        steps = migration.steps(report, run.config, collection.get(Markers))
    if form == "json":
        print(json.dumps(migration.as_document(steps), indent=2))
    else:
        width = render.width_of(render.console_for(sys.stdout))
        lines = migration.as_text(steps, width) if form == "text" else migration.as_markdown(steps)
        print("\n".join(harmless(line) for line in lines))
    return migration.exit_code(steps)
