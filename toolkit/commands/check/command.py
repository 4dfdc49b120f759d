"""The command `check`: examine the facts that the options name, and show the report."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.examination import Examination, Request, examine
from verl_doctor.toolkit.engine.session import all_facts, open_session
from verl_doctor.toolkit.engine.unchanged import remembering
from verl_doctor.toolkit.options.examination import announced_session, are_several, show_report, source_of
from verl_doctor.toolkit.options.exit_codes import EPILOG
from verl_doctor.toolkit.options.node_options import node_options
from verl_doctor.toolkit.options.rule_options import Rules, rule_options
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import PATH, FileToWrite
from verl_doctor.toolkit.options.view_options import View, view_options
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.target import Options, UsageError
from verl_doctor.toolkit.text import harmless


@click.command(epilog=EPILOG)
@target_options
@job_options
@node_options
@rule_options
@view_options
@click.option(
    "--facts",
    type=PATH,
    metavar="FILE",
    multiple=True,
    help=(
        "Check facts saved elsewhere. For several nodes give a folder, or repeat the option, with one file "
        "per node (NODE.json); they are also compared."
    ),
)
@click.option(
    "--save-facts",
    type=FileToWrite(output.FACTS),
    metavar="FILE",
    help="Save the facts of this machine as JSON.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option(
    "--each",
    is_flag=True,
    help="Check each file as a separate job; report only findings in the files, one line each.",
)
def check(
    *,
    options: Options,
    nodes: RequestedNodes | None,
    rules: Rules,
    view: View,
    facts: tuple[Path, ...],
    save_facts: Path | None,
    strict: bool,
    each: bool,
) -> int:
    """Check this environment without changing it.

    LAUNCH_SCRIPT is read, not run: a shell script with its arguments, a runtime_env file, a Dockerfile, or
    several of these.
    """
    if save_facts is not None and are_several(facts):
        raise UsageError("--save-facts saves the facts of one machine, but --facts names several")
    if nodes is not None and facts:
        raise UsageError(
            "--facts checks facts from elsewhere; it cannot be combined with options that query nodes"
        )
    if each:
        if nodes is not None or facts or save_facts is not None or not options.launch:
            raise UsageError(
                "--each checks launch files on this machine: name at least one, without --facts or nodes"
            )
        return _check_each(options, rules, view, strict=strict)
    planned = view.form == "sarif" and nodes is None and not facts
    as_usual = nodes is None and not facts and not rules.deep and save_facts is None and view.form != "sarif"
    with nothing_on_stdout(), Progress() as progress:
        run = announced_session(options, rules, view, facts)
        run = replace(run, offline=planned)
        with remembering(run) if as_usual else nullcontext(run) as run:
            found = examine(Request(run, source_of(facts, nodes)), progress.show)
        taken = all_facts(run, found.facts) if save_facts is not None else ""
        report = _with_plans(found) if planned else found.report
    if save_facts is not None:
        output.write(save_facts, taken, private=True)
    return show_report(report, run, view, report.exit_code(strict=strict))


def _with_plans(found: Examination) -> Report:
    """The report with the repairs that SARIF contains."""
    from verl_doctor.toolkit.repair import repair  # noqa: PLC0415 - a plain check does without the change engine

    return repair.show(found.session, found.facts, found.report)


def _check_each(options: Options, rules: Rules, view: View, *, strict: bool) -> int:
    from verl_doctor.toolkit.commands.check.answer import EachAnswer  # noqa: PLC0415 - a plain check does without
    from verl_doctor.toolkit.engine.check_each import EachLaunchFile  # noqa: PLC0415 - see above

    with nothing_on_stdout(), Progress() as progress:
        common = replace(options, launch=())
        run = open_session(common, select=rules.select, ignore=rules.ignore, deep=rules.deep)
        report = examine(Request(run, EachLaunchFile(common, options.launch)), progress.show).report
    code = report.exit_code(strict=strict)
    answer = EachAnswer(report, code, view.verbose, run.registry.checks, run.machine.cwd)
    show(answer, view.form, view.output)
    explained = {"error", "skipped"} if view.verbose else {"error"}
    for result in report.results if view.form == "text" else ():
        if result.status in explained:
            print(harmless(f"{result.code} could not check: {result.reason}"), file=sys.stderr)
    return code
