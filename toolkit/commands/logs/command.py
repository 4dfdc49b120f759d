"""`verl-doctor logs`: why a run failed, from its logs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine import config, registry
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.options.completing import complete_files
from verl_doctor.toolkit.options.target_options import script_options, target_options
from verl_doctor.toolkit.options.value_types import FileToWrite
from verl_doctor.toolkit.options.view_options import answer_options
from verl_doctor.toolkit.rule import family_of
from verl_doctor.toolkit.target import CannotJudgeError, Options, UsageError

if TYPE_CHECKING:
    from verl_doctor.toolkit.logs.answer import Answer, Confirmation
    from verl_doctor.toolkit.logs.logged_error import LoggedError
    from verl_doctor.toolkit.result import CheckResult

_OF_JOBS = ("CFG", "DATA", "LOAD", "ENV", "API")
"""The families of rules about what a job names in its script."""
_EPILOG = (
    "Exit codes: 0 the logs show no failure, 1 a cause was found, 2 wrong usage, "
    "3 the cause was not determined, or a log could not be read completely."
)


@click.command(epilog=_EPILOG)
@target_options
@script_options
@click.argument("named", metavar="FILE... | -", nargs=-1, required=True, shell_complete=complete_files)
@click.option("--verify", is_flag=True, help="Run the checks that can confirm the cause on this machine.")
@click.option(
    "-v", "--verbose", is_flag=True, help="With --verify, show in full what each of these checks reports."
)
@click.option(
    "--timeline",
    "with_timeline",
    is_flag=True,
    help="Show how the time until the first training step was spent.",
)
@click.option(
    "--svg",
    "svg",
    type=FileToWrite(output.PICTURE),
    metavar="FILE",
    help="Draw the timeline into this file.",
)
@answer_options
def logs(
    *,
    options: Options,
    named: tuple[str, ...],
    verify: bool,
    verbose: bool,
    with_timeline: bool,
    svg: Path | None,
    form: str,
    file: Path | None,
) -> int:
    """Find the first cause of a failed run in its logs.

    FILE is a log of any size, possibly compressed with gzip or zstd, or a folder of logs such as
    /tmp/ray/session_latest/logs; - is standard input. Several files are read as the logs of one run. The
    options that name the job or its environment require --verify, which examines them.
    """
    from verl_doctor.toolkit.commands.logs.answer import LogsAnswer  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.logs import reading  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.logs.sources import sources_of  # noqa: PLC0415

    if options != Options() and not verify:
        raise UsageError("options that name the job or its environment require --verify")
    if file is not None:
        output.refuse_inputs(file, named)
    notes: list[str] = []
    with Progress() as progress:
        sources = sources_of(named, notes.append)
        answer = reading.diagnose(sources, notes, progress.show)
    if not answer.files:
        why = "; ".join(answer.notes) or "there is nothing to read"
        if sources:
            raise UsageError(why)
        raise CannotJudgeError(why)  # only file systems that do not answer
    if verify or answer.reading.causes:
        with nothing_on_stdout():
            run = open_session(options, deep=True) if verify else None
            confirmed = None if run is None else _confirmed(answer, run)
            arguments = () if run is None else run.target.arguments
            answer = replace(answer, fixes=_fixes(answer, run), confirmed=confirmed, arguments=arguments)
    code = show(LogsAnswer(answer, with_timeline=with_timeline, verbose=verbose), form, file)
    if svg is not None:
        _draw(answer, svg)
    return code


def _draw(answer: Answer, file: Path) -> None:
    """Write the picture; report on stderr whether it replaced a file, or that there is nothing to draw."""
    from verl_doctor.toolkit.logs.timeline import svg as timeline_svg  # noqa: PLC0415 - see above
    from verl_doctor.toolkit.logs.timeline.render import NOTHING  # noqa: PLC0415

    if not answer.timeline.workers:
        click.echo(f"{file} was not written: {NOTHING[0].lower()}{NOTHING[1:]}", err=True)
        return
    was_there = os.path.exists(file)
    output.write(file, timeline_svg.picture(answer.timeline))
    click.echo(f"the picture {'replaces what was in' if was_there else 'is in'} {file}", err=True)


def _fixes(answer: Answer, run: Session | None) -> dict[str, tuple[str, str]]:
    """For each cause the first fix that repairs it, safe ones first."""
    from verl_doctor.toolkit.logs.reading import codes_of  # noqa: PLC0415 - see above

    known = run.registry if run is not None else registry.load(config.load(Path.cwd()).disable_plugins)
    fixes = sorted(known.fixes, key=lambda fix: fix.safety != "safe")
    found = {
        code: next(((fix.id, fix.safety) for fix in fixes if code in fix.repairs), None)
        for code in codes_of(answer.reading)
    }
    return {code: fix for code, fix in found.items() if fix is not None}


def _confirmed(answer: Answer, run: Session) -> dict[str, tuple[Confirmation, ...]]:
    """The results of rules that look for the causes here, including slow ones, by the code of the cause."""
    wanted = {
        cause.signature.code: [code for code in cause.signature.rules if run.registry.check(code) is not None]
        for cause in answer.reading.causes
        if cause.signature is not None
    }
    wanted = {cause: codes for cause, codes in wanted.items() if codes}
    if (
        (first := answer.reading.first) is not None
        and first.blame is not None
        and (run.target.files or run.target.words)
    ):
        return _confirmed_in_script(first, run)
    codes_wanted = tuple(dict.fromkeys(code for codes in wanted.values() for code in codes))
    if not codes_wanted:
        return {}
    results = {
        result.code: _confirmations(result)
        for result in examine(Request(run.narrowed(codes_wanted))).report.results
    }
    return {
        cause: tuple(each for code in codes for each in results.get(code, ()))
        for cause, codes in wanted.items()
    }


def _confirmed_in_script(cause: LoggedError, run: Session) -> dict[str, tuple[Confirmation, ...]]:
    """The errors that the rules find in the launch script at what the exception names."""
    from verl_doctor.toolkit.logs.causes import name_of  # noqa: PLC0415 - see above
    from verl_doctor.toolkit.logs.confirming import is_about  # noqa: PLC0415 - see above

    codes = tuple(
        check.code
        for check in run.registry.checks
        if check.cost == "instant" and family_of(check.code) in _OF_JOBS
    )
    if cause.blame is None or not codes or cause.blame.fault == "program":
        return {}
    found = [
        confirmed
        for result in examine(Request(run.narrowed(codes))).report.results
        if (findings := tuple(each for each in result.findings if is_about(each, cause)))
        for confirmed in _confirmations(replace(result, findings=findings))
    ]
    return {name_of(cause)[0]: tuple(found)}


def _confirmations(result: CheckResult) -> list[Confirmation]:
    from verl_doctor.toolkit.logs.answer import Confirmation  # noqa: PLC0415 - see above

    if result.findings:
        return [
            Confirmation(
                result.code,
                finding.message,
                str(finding.location) if finding.location else "",
                finding.remedy,
            )
            for finding in result.findings
        ]
    if result.status == "pass":
        return [Confirmation(result.code, "not found here now", is_finding=False)]
    reason = f": {result.reason}" if result.reason else ""
    return [Confirmation(result.code, f"{result.status.replace('_', ' ')}{reason}", is_finding=False)]
