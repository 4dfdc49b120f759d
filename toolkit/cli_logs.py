"""`verl-doctor logs`: why a run failed, from its logs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verl_doctor.toolkit.cli_options import FILE_TO_WRITE, answer_options, target_options
from verl_doctor.toolkit.session import open_session
from verl_doctor.toolkit.streams import nothing_on_stdout
from verl_doctor.toolkit.target import Options, UsageError
from verl_doctor.toolkit.view import as_view, show

if TYPE_CHECKING:
    from verl_doctor.toolkit.log_document import Answer

_EPILOG = (
    "Exit codes: 0 nothing in the logs says that something failed, 1 a cause was named, 2 wrong usage, "
    "3 something failed and its cause was not determined."
)


@click.command(epilog=_EPILOG)
@target_options
@click.argument("named", metavar="FILE... | -", nargs=-1, required=True)
@click.option("--verify", is_flag=True, help="Run the checks concerned: is it so on this machine?")
@click.option(
    "--timeline",
    "with_timeline",
    is_flag=True,
    help="Show where the time went until the first training step.",
)
@click.option(
    "--svg", "svg", type=FILE_TO_WRITE, metavar="FILE", help="Draw that as a picture into this file."
)
@answer_options
def logs(
    *,
    options: Options,
    named: tuple[str, ...],
    verify: bool,
    with_timeline: bool,
    svg: Path | None,
    form: str,
    file: Path | None,
) -> int:
    """Find the first cause of a failed run in its logs.

    FILE is a log of any size, also packed with gzip or zstd, or a folder of logs such as /tmp/ray/session_latest/logs; - is
    standard input. Several are read as the logs of one run.
    """
    from verl_doctor.toolkit import log_reading, render_logs  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.log_document import document  # noqa: PLC0415
    from verl_doctor.toolkit.log_sources import sources_of  # noqa: PLC0415

    if options != Options() and not verify:
        raise UsageError(
            "--python, --verl and --vllm say where --verify looks: give that too, or leave them out"
        )
    answer = log_reading.diagnose(sources_of(named))
    if not answer.files:
        raise UsageError("; ".join(answer.notes) or "there is nothing to read")
    if verify:
        with nothing_on_stdout():
            answer = _verified(answer, options)
    view = as_view(
        lambda: document(answer),
        lambda: render_logs.markdown_lines(answer),
        lambda width: render_logs.text_lines(answer, width, with_timeline=with_timeline),
    )
    show(view, form, file)
    if svg is not None:
        _draw(answer, svg)
    return answer.exit_code


def _draw(answer: Answer, file: Path) -> None:
    """The picture, and on stderr whether there was one before, or that there is nothing to draw."""
    from verl_doctor.toolkit import log_timeline_svg, output  # noqa: PLC0415 - see above

    if not answer.timeline.workers:
        click.echo(f"{file} was not written: no line tells how long anything took", err=True)
        return
    was_there = os.path.exists(file)
    output.write(file, log_timeline_svg.picture(answer.timeline))
    click.echo(f"the picture {'replaces what was in' if was_there else 'is in'} {file}", err=True)


def _verified(answer: Answer, options: Options) -> Answer:
    """What the rules of the named causes say here; those that try things out are asked too."""
    from verl_doctor.toolkit.log_reading import codes_of  # noqa: PLC0415 - see above

    run = open_session(options, deep=True)
    asked = tuple(code for code in codes_of(answer.reading) if run.registry.check(code) is not None)
    if not asked:
        return answer
    report = run.narrowed(asked).check(run.look())
    said = {
        result.code: "; ".join(finding.message for finding in result.findings)
        or f"{result.status.replace('_', ' ')}{': ' + result.reason if result.reason else ''}"
        for result in report.results
        if result.code in asked
    }
    return replace(answer, confirmed=said)
