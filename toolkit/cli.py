"""The command line: options in, sentences and exit codes out. No judgement lives here."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from verl_doctor.toolkit import output, render, session
from verl_doctor.toolkit.cli_group import Group
from verl_doctor.toolkit.cli_options import (
    FILE_TO_WRITE,
    PATH,
    Rules,
    View,
    job_options,
    node_options,
    rule_options,
    target_options,
    view_options,
)
from verl_doctor.toolkit.fact_markers import Markers
from verl_doctor.toolkit.garbage import leave_it_at_exit
from verl_doctor.toolkit.node_request import AskedNodes, CouldNotAsk
from verl_doctor.toolkit.progress import Progress
from verl_doctor.toolkit.refused import said_by
from verl_doctor.toolkit.session import Session, open_session
from verl_doctor.toolkit.streams import end_stdout, give_up_stdout, nothing_on_stdout, open_closed_streams
from verl_doctor.toolkit.target import Options, Target, UsageError
from verl_doctor.toolkit.text import harmless, listed

# The machine's fault, not ours.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})

_ELSEWHERE = {
    "actors": "cli_actors",
    "clean": "cli_clean",
    "smoke": "cli_smoke",
    "logs": "cli_logs",
    "watch": "cli_watch",
    "warmup": "cli_warmup",
    "undo": "cli_changes",
    "environment": "cli_environment",
    "matrix": "cli_matrix",
    "patches": "cli_patches",
    "tiny": "cli_tiny",
    "script": "cli_script",
    **dict.fromkeys(("rules", "explain", "plugins", "schema", "completion", "demo"), "cli_docs"),
}

EPILOG = "Exit codes: 0 nothing failed, 1 failures found, 2 wrong usage, 3 could not check."


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line. What goes wrong is said in one sentence on stderr; a traceback needs -v."""
    open_closed_streams()
    leave_it_at_exit()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = cli.main(given, prog_name="verl-doctor", standalone_mode=False) or 0
        end_stdout()
        sys.exit(code)
    except UsageError as error:
        _stop(str(error), 2)
    except click.UsageError as error:
        hint = f"; see: {error.ctx.command_path} --help" if error.ctx else ""
        _stop(error.format_message().rstrip(".") + hint, 2)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except CouldNotAsk as error:
        _stop(str(error), 3)
    except (click.Abort, KeyboardInterrupt):
        _stop("stopped; verl-doctor undo --list shows whether anything was changed", 130)
    except BrokenPipeError:
        give_up_stdout()
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - a defect of the doctor must not look like a finding
        if {"-v", "--verbose"} & set(given):
            traceback.print_exc()
        if isinstance(error, OSError) and error.errno in _FULL:
            give_up_stdout()
            _stop(f"could not finish: {said_by(error)}", 3)
        where = traceback.extract_tb(error.__traceback__)[-1]
        _stop(
            f"could not check: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}); "
            f"this is a defect of verl-doctor, please report it with the output of -v",
            3,
        )


def _stop(sentence: str, code: int) -> NoReturn:
    print(f"verl-doctor: {harmless(sentence)}", file=sys.stderr)
    sys.exit(code)


@click.group(
    cls=Group, elsewhere=_ELSEWHERE, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="verl-doctor", message="verl-doctor %(version)s")
def cli() -> None:
    """Judge a verl environment before the job starts, repair it, and take repairs back.

    \b
    verl-doctor check         what here would stop or slow a verl job
    verl-doctor fix           the repairs as a diff; --apply carries them out
    verl-doctor undo          take the last repair back
    verl-doctor environment   what the workers will see of each variable
    verl-doctor matrix        which vLLM releases this verl runs on
    verl-doctor actors        who lives on which GPU; which ranks are alive
    verl-doctor clean         what dead jobs have left behind; --apply removes it
    verl-doctor logs FILE     why a run failed, from its logs
    verl-doctor script        a DEBUG or FAST_LOAD variant of a launch script
    verl-doctor smoke         try what the job will do; the first rung that breaks
    verl-doctor watch         what will run out first while a job runs, and when
    verl-doctor tiny DIR      tiny data and a tiny random model, for trials
    verl-doctor warmup        a job's files into memory before it starts
    verl-doctor demo          all of that on a miniature, in seconds

    The environment that is active is examined; --python examines another one.
    """  # noqa: D301 - click's mark for lines that stay as they are


@cli.command(epilog=EPILOG)
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
    "--save-facts", type=FILE_TO_WRITE, metavar="FILE", help="Save the facts of this machine as JSON."
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
def check(
    *,
    options: Options,
    nodes: AskedNodes | None,
    rules: Rules,
    view: View,
    facts: tuple[Path, ...],
    save_facts: Path | None,
    strict: bool,
) -> int:
    """Judge this environment. Changes nothing.

    LAUNCH_SCRIPT is read, not run: a shell script with its arguments, a runtime_env file, a Dockerfile, or several of them.
    """
    several = len(facts) > 1 or any(os.path.isdir(path) for path in facts)
    if save_facts is not None and several:
        raise UsageError("--save-facts saves the facts of one machine, and --facts names several")
    if nodes is not None and facts:
        raise UsageError("--facts judges what was seen elsewhere: no node can be asked with it")
    with nothing_on_stdout(), Progress() as progress:
        run = _session(options, rules, view, facts)
        if several:
            from verl_doctor.toolkit import fleet  # noqa: PLC0415 - a plain check does without

            report, taken = fleet.judge_files(facts, run, progress.say), ""
        elif nodes is not None:
            from verl_doctor.toolkit import cluster_check  # noqa: PLC0415 - see above

            collection = run.look()
            report = cluster_check.report(nodes, run, collection, progress.say)
            taken = session.all_facts(run, collection) if save_facts else ""
        else:
            collection = run.look()
            report = run.check(collection, progress.say)
            taken = session.all_facts(run, collection) if save_facts else ""
    if save_facts is not None:
        output.write(save_facts, taken)
    render.show(report, view.form, view.output, verbose=view.verbose)
    return report.exit_code(strict=strict)


@cli.command(epilog="Exit codes with --apply: 0 all that was attempted is repaired, 1 something still fails.")
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
    render.show(report, view.form, view.output, verbose=view.verbose)
    return max(repair.exit_code(report), int(bool(left))) if apply_them else report.exit_code()


@cli.command(epilog="Exit codes: 0 no step failed, 1 a step failed, 3 a step could not be judged.")
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
    from verl_doctor.toolkit import checklist as migration  # noqa: PLC0415 - only this command needs it

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
