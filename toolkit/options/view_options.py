"""Options that choose the form of an output, and where it goes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.formats import FORMATS, HEADLINE
from verl_doctor.toolkit.options import hints
from verl_doctor.toolkit.options.shared import Command, shared_option
from verl_doctor.toolkit.options.value_types import FileToWrite, force_option
from verl_doctor.toolkit.target import UsageError

ANSWER_FORMATS = ("text", "json", "markdown")
"""The output formats of every command."""


@dataclass(frozen=True)
class View:
    """How to show a report, and where."""

    form: str = "text"
    output: Path | None = None
    verbose: bool = False


def view_options(command: Command) -> Command:
    """Options that choose the output; the command gets `view`."""

    @_form_options(FORMATS)
    @shared_option("-v", "--verbose", is_flag=True, help="Show everything, including what is fine.")
    @functools.wraps(command)
    def with_view(*, form: str, file: Path | None, verbose: bool, **others: Any) -> Any:
        return command(view=View(form, file, verbose), **others)

    return with_view


def answer_options(command: Command) -> Command:
    """Options of a command with a result in the common formats; the command gets `form` and `file`."""
    return _form_options(ANSWER_FORMATS)(command)


def _form_options(formats: Sequence[str]) -> Callable[[Command], Command]:
    def decorated(command: Command) -> Command:
        @shared_option(
            "--format", "form", type=click.Choice(formats), help="The output format.  [default: text]"
        )
        @shared_option("--json", "as_json", is_flag=True, help="The same as --format json.")
        @shared_option("-q", "--quiet", is_flag=True, help="Show only the verdict, on one line.")
        @shared_option(
            "--output",
            "file",
            type=FileToWrite(output.ANSWER),
            metavar="FILE",
            help="Write to this file instead of stdout.",
        )
        @force_option
        @functools.wraps(command)
        def with_form(*, form: str | None, as_json: bool, quiet: bool, **others: Any) -> Any:
            return command(form=_form(form, as_json=as_json, quiet=quiet), **others)

        return with_form

    return decorated


def _form(form: str | None, *, as_json: bool, quiet: bool) -> str:
    """Return the format that the options choose. Raises UsageError if they conflict."""
    if as_json and form not in (None, "json"):
        raise UsageError(f"choose either --json or --format {form}")
    chosen = form or ("json" if as_json else "text")
    if not quiet:
        return chosen
    if chosen != "text":
        raise UsageError(f"--quiet applies to text only: remove it or --format {chosen}")
    return HEADLINE


def show_all_option(command: Command) -> Command:
    """-v for a command that shows less without it; the command gets `verbose`.

    `--all` of 0.1.0 does the same.
    """

    @shared_option("-v", "--verbose", is_flag=True, help="Show everything.")
    @click.option("-a", "--all", "every", is_flag=True, hidden=True)
    @functools.wraps(command)
    def with_verbose(*, verbose: bool, every: bool, **others: Any) -> Any:
        if every:
            hints.replaced("--all", "--verbose")
        return command(verbose=verbose or every, **others)

    return with_verbose
