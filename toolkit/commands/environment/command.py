"""`verl-doctor environment`: what the workers of a job will see, and what decides it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.options import hints
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import PATH
from verl_doctor.toolkit.options.view_options import answer_options, show_all_option
from verl_doctor.toolkit.target import Options
from verl_doctor.toolkit.text import harmless

_NOT_CHECKED = 3


@click.command(epilog="Exit codes: 0 the table is shown, 2 wrong usage, 3 it could not be made.")
@target_options
@job_options
@show_all_option
@click.option("--facts", type=PATH, metavar="FILE", help="Show facts saved elsewhere (check --save-facts).")
@answer_options
def environment(*, options: Options, verbose: bool, facts: Path | None, form: str, file: Path | None) -> int:
    """Show what the workers will see of each variable, and why.

    Ray's workers inherit from the raylet, not from this shell; verl, a runtime_env and Ray itself add and
    remove variables. The launch script is read, not run, and values that may be secrets are never shown.
    """
    hints.replaced("verl-doctor environment run.sh", "verl-doctor explain variables run.sh")
    return seen_by_workers(options, facts, form, file, verbose=verbose)


def seen_by_workers(
    options: Options, facts: Path | None, form: str, file: Path | None, *, verbose: bool
) -> int:
    """Show what workers will see of each variable; with `verbose` also of those that are equal everywhere."""
    from verl_doctor.toolkit.commands.environment.answer import EnvironmentAnswer  # noqa: PLC0415 - only this command needs it

    with nothing_on_stdout(), Progress():
        look = open_session(options, facts_file=facts).look()
        unusable = _unusable(look.get(Interpreter))
        found = look.get(EffectiveEnvironment) if unusable is None else unusable
    if isinstance(found, Unknown):
        print(f"verl-doctor: {harmless(found.reason)}", file=sys.stderr)
        return _NOT_CHECKED
    return show(EnvironmentAnswer(found, every=verbose), form, file)


def _unusable(interpreter: Interpreter | Unknown) -> Unknown | None:
    """Why the interpreter could not be queried, so that verl was not read.

    A facts file need not contain it.
    """
    return interpreter if isinstance(interpreter, Unknown) and interpreter.kind != "" else None
