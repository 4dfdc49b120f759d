"""`verl-doctor environment`: what the workers of a job will really see, and who decides it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from verl_doctor.toolkit.cli_options import PATH, answer_options, job_options, target_options
from verl_doctor.toolkit.fact_effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.progress import Progress
from verl_doctor.toolkit.session import open_session
from verl_doctor.toolkit.streams import nothing_on_stdout
from verl_doctor.toolkit.target import Options
from verl_doctor.toolkit.text import harmless
from verl_doctor.toolkit.view import as_view, show

_NOT_TOLD = 3


@click.command(epilog="Exit codes: 0 the table was made, 2 wrong usage, 3 it could not be made.")
@target_options
@job_options
@click.option("--all", "every", is_flag=True, help="Also the variables on which all agree.")
@click.option(
    "--facts", type=PATH, metavar="FILE", help="Show what was saved elsewhere (check --save-facts)."
)
@answer_options
def environment(*, options: Options, every: bool, facts: Path | None, form: str, file: Path | None) -> int:
    """Show what the workers will see of each variable, and why.

    Ray's workers inherit from the raylet, not from this shell; verl, a runtime_env and Ray itself add to that and take
    away. The launch script is read, not run, and values that may be secrets are never shown.
    """
    from verl_doctor.toolkit import environment_document, render_environment  # noqa: PLC0415 - only this command needs it

    with nothing_on_stdout(), Progress():
        found = open_session(options, facts_file=facts).look().get(EffectiveEnvironment)
    if isinstance(found, Unknown):
        print(f"verl-doctor: {harmless(found.reason)}", file=sys.stderr)
        return _NOT_TOLD
    view = as_view(
        lambda: environment_document.document(found),
        lambda: render_environment.markdown_lines(found, every=every),
        lambda width: render_environment.text_lines(found, width, every=every),
    )
    show(view, form, file)
    return 0
