"""The commands `check` and `fix`: a session is opened, its report is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from verl_doctor.toolkit import output, render, session
from verl_doctor.toolkit.cli_group import EPILOG
from verl_doctor.toolkit.cli_options import (
    PATH,
    FileToWrite,
    Rules,
    View,
    job_options,
    node_options,
    rule_options,
    target_options,
    view_options,
)
from verl_doctor.toolkit.node_request import AskedNodes
from verl_doctor.toolkit.progress import Progress
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.session import Session, open_session
from verl_doctor.toolkit.streams import nothing_on_stdout
from verl_doctor.toolkit.target import Options, Target, UsageError
from verl_doctor.toolkit.text import harmless, listed
from verl_doctor.toolkit.view import show


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
    help="Judge facts that were saved elsewhere; a folder, or repeated: one file of each node, NODE.json, compared too.",
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
    help="Judge each file as a job of its own; say what is about the files alone, a line for each finding.",
)
def check(
    *,
    options: Options,
    nodes: AskedNodes | None,
    rules: Rules,
    view: View,
    facts: tuple[Path, ...],
    save_facts: Path | None,
    strict: bool,
    each: bool,
) -> int:
    """Judge this environment. Changes nothing.

    LAUNCH_SCRIPT is read, not run: a shell script with its arguments, a runtime_env file, a Dockerfile, or several of them.
    """
    several = len(facts) > 1 or any(os.path.isdir(path) for path in facts)
    if save_facts is not None and several:
        raise UsageError("--save-facts saves the facts of one machine, and --facts names several")
    if nodes is not None and facts:
        raise UsageError("--facts judges what was seen elsewhere: no node can be asked with it")
    if each:
        if nodes is not None or facts or save_facts is not None or not options.launch:
            raise UsageError(
                "--each judges launch files on this machine: name some, and no facts and no nodes"
            )
        return _check_each(options, rules, view, strict=strict)
    with nothing_on_stdout(), Progress() as progress:
        run = _session(options, rules, view, facts)
        if several:
            from verl_doctor.toolkit import fleet  # noqa: PLC0415 - a plain check does without

            report, taken = fleet.judge_files(facts, run, progress.say), ""
        elif facts and (kept := _of_kept_nodes(facts[0], run, progress.say)) is not None:
            report, taken = kept, ""
        elif nodes is not None:
            from verl_doctor.toolkit import cluster_check  # noqa: PLC0415 - see above

            collection = run.look()
            report = cluster_check.report(nodes, run, collection, progress.say)
            taken = session.all_facts(run, collection) if save_facts else ""
        else:
            collection = run.look()
            report = run.check(collection, progress.say)
            taken = session.all_facts(run, collection) if save_facts else ""
            if view.form == "sarif" and not facts:
                from verl_doctor.toolkit import repair  # noqa: PLC0415 - a plain check does without the change engine

                report = repair.show(run, collection, report)
    if save_facts is not None:
        output.write(save_facts, taken, private=True)
    code = report.exit_code(strict=strict)
    _show(report, view, run, code)
    return code


@click.command(
    epilog="Exit codes with --apply: 0 all that was attempted is repaired, 1 something still fails."
)
@target_options
@job_options
@node_options
@rule_options
@view_options
@click.option("--apply", "apply_them", is_flag=True, help="Carry the safe repairs out, then check again.")
@click.option(
    "--unsafe",
    is_flag=True,
    help="With --apply: also what cannot be undone (installing packages), or changes what the job does.",
)
@click.option(
    "--output-env",
    type=PATH,
    metavar="DIR",
    help="The folder for the variables that repairs need: a file to source and one for Ray. "
    "Without --apply they are shown.",
)
def fix(
    *,
    options: Options,
    nodes: AskedNodes | None,
    rules: Rules,
    view: View,
    apply_them: bool,
    unsafe: bool,
    output_env: Path | None,
) -> int:
    """Show the repairs as a diff; --apply carries them out.

    Variables go into files in DIR that the next job is started with, and are judged as if it was.
    """
    from verl_doctor.toolkit import job_environment, repair  # noqa: PLC0415 - a plain check does without the change engine

    if unsafe and not apply_them:
        raise UsageError(
            "--unsafe means something only with --apply; without it everything is shown and nothing done"
        )
    if nodes is not None and output_env is not None:
        raise UsageError("--output-env writes the files of a job, on this machine: leave the nodes out")
    left: tuple[object, ...] = ()
    with nothing_on_stdout(), Progress() as progress:
        run = _session(options, rules, view)
        job = job_environment.asked_for(run.machine, output_env)
        collection = (run if job is None else run.started_anew(job.as_found)).look()
        report = run.check(collection, progress.say)
        if nodes is not None:
            from verl_doctor.toolkit import cluster_repair  # noqa: PLC0415 - few repairs are of many nodes

            if apply_them:
                report, left = cluster_repair.carry_out(
                    nodes, run, collection, report, unsafe=unsafe, watch=progress.say
                )
            else:
                cluster_repair.show(nodes, run, collection, progress.say)
                report = repair.show(run, collection, report)
        elif apply_them:
            report = repair.carry_out(run, collection, report, unsafe=unsafe, job=job)
        else:
            report = repair.show(run, collection, report, job)
    code = max(repair.exit_code(report), int(bool(left))) if apply_them else report.exit_code()
    _show(report, view, run, code)
    return code


def _show(report: Report, view: View, run: Session, code: int) -> None:
    forms = render.view_of(report, verbose=view.verbose, rules=run.registry.checks, code=code)
    undo = "verl-doctor undo --list shows what was changed" if report.applied else ""
    show(forms, view.form, view.output, next_step=undo)


def _check_each(options: Options, rules: Rules, view: View, *, strict: bool) -> int:
    from verl_doctor.toolkit import check_each  # noqa: PLC0415 - a plain check does without

    with nothing_on_stdout(), Progress() as progress:
        common = replace(options, launch=())
        run = open_session(common, select=rules.select, ignore=rules.ignore, deep=rules.deep)
        report = check_each.judged(run, common, options.launch, progress.say)
    code = report.exit_code(strict=strict)
    if view.form != "text":
        _show(report, view, run, code)
        return code
    said = "".join(f"{line}\n" for line in check_each.lines(report, run.machine.cwd))
    if view.output is None:
        print(said, end="")
    else:
        output.write(view.output, said)
    for result in report.results if report.verdict == "could_not_check" or view.verbose else ():
        if result.status in {"error", "skipped"}:
            print(harmless(f"{result.code} could not be judged: {result.reason}"), file=sys.stderr)
    return code


def _of_kept_nodes(path: Path, run: Session, watch: Callable[[str], None]) -> Report | None:
    """The report on a snapshot of several nodes; None where the file holds the facts of one machine."""
    from verl_doctor.toolkit import snapshot  # noqa: PLC0415 - only --facts needs it

    nodes = snapshot.nodes_in(path)
    if nodes is None:
        return None
    from verl_doctor.toolkit import fleet  # noqa: PLC0415 - a plain check does without

    return fleet.judge(nodes.answers(), run, run.look(), watch)


def _session(options: Options, rules: Rules, view: View, facts: tuple[Path, ...] = ()) -> Session:
    """Open the session, and say in the first line what is being examined."""

    def announce(target: Target) -> None:
        if view.form == "text":
            files = [
                f"{'the facts files in' if os.path.isdir(path) else 'facts file'} {path}" for path in facts
            ]
            where = listed(files, 2) if facts else f"{target.python} ({target.chosen_by})"
            print(f"verl-doctor {session.version()} examines {harmless(where)}", file=sys.stderr, flush=True)
            if target.passed_over and not facts:
                print(f"  not the active one: {harmless(target.passed_over)}", file=sys.stderr)

    return open_session(
        options,
        select=rules.select,
        ignore=rules.ignore,
        deep=rules.deep,
        facts_file=facts[0] if facts else None,
        announce=announce,
    )
