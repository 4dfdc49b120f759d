"""`verl-doctor report`: a page to paste into an issue, or to send to a colleague."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.options.exit_codes import EPILOG
from verl_doctor.toolkit.options.node_options import node_options
from verl_doctor.toolkit.options.rule_options import Rules, rule_options
from verl_doctor.toolkit.options.shared import shared_option
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import PATH, FileToWrite, force_option
from verl_doctor.toolkit.target import Options, UsageError

_FORMS = ("markdown", "text", "json")


@click.command(epilog=EPILOG)
@target_options
@job_options
@node_options
@rule_options
@click.option(
    "--log",
    "logs",
    metavar="FILE",
    multiple=True,
    help="Also report why a run failed. For several logs give a folder, or repeat the option.",
)
@click.option(
    "--from",
    "old",
    type=PATH,
    metavar="OLD",
    help="Report the differences from this snapshot of a cluster where the job worked.",
)
@click.option(
    "--facts",
    type=PATH,
    metavar="FILE",
    multiple=True,
    help="Report on facts saved elsewhere (check --save-facts).",
)
@click.option(
    "--html",
    "page",
    type=FileToWrite(output.ANSWER),
    metavar="FILE",
    help="Write one self-contained page for a browser.",
)
@shared_option(
    "--format", "form", type=click.Choice(_FORMS), help=f"The output format.  [default: {_FORMS[0]}]"
)
@shared_option("--json", "as_json", is_flag=True, help="The same as --format json.")
@shared_option(
    "--output",
    "file",
    type=FileToWrite(output.ANSWER),
    metavar="FILE",
    help="Write to this file instead of stdout.",
)
@click.option("--network", is_flag=True, help="Also test whether the package indexes of pip and uv respond.")
@click.option("--full", is_flag=True, help="Show users, hosts and addresses. Secrets are never shown.")
@force_option
def report(
    *,
    options: Options,
    nodes: RequestedNodes | None,
    rules: Rules,
    logs: tuple[str, ...],
    old: Path | None,
    facts: tuple[Path, ...],
    page: Path | None,
    form: str | None,
    as_json: bool,
    file: Path | None,
    network: bool,
    full: bool,
) -> int:
    """Write a page to paste into an issue of verl.

    The page has the verdict with its evidence, and the output of verl's scripts/diagnose.py, as Markdown that
    fits into a GitHub issue. Users, hosts and addresses are masked. With --html alone nothing is written to
    stdout. Nothing is changed.
    """
    from verl_doctor.toolkit.commands.report import render_html, view  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.commands.report.look import LookRequest, look  # noqa: PLC0415 - see above
    from verl_doctor.toolkit.console.view import show  # noqa: PLC0415 - see above

    form = form or ("json" if as_json else None)
    if as_json and form != "json":
        raise UsageError(f"choose either --json or --format {form}")
    if nodes is not None and facts:
        raise UsageError(
            "--facts reports on facts from elsewhere; it cannot be combined with options that query nodes"
        )
    if network and facts:
        raise UsageError("--network tests this machine, but --facts reports on facts from elsewhere")
    for path in (page, file):
        if path is not None:
            output.refuse_inputs(path, logs)
    with nothing_on_stdout(), Progress() as progress:
        run = open_session(
            options,
            select=rules.select,
            ignore=rules.ignore,
            deep=rules.deep,
            facts_file=facts[0] if facts else None,
        )
        seen = look(run, LookRequest(nodes, facts, logs, old, network), progress.show)
        made = view.make(seen, run.machine, masked=not full)
    if page is not None:
        output.write(page, render_html.render(made.page))
        print(f"verl-doctor: wrote {page}", file=sys.stderr)
    if page is None or form is not None or file is not None:
        show(made, form or _FORMS[0], file)
    return made.exit_code()
