"""Choosing the view of a report, and writing it where the user wants it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import TextIO

from rich.console import Console

from verl_doctor.toolkit import render_markdown, render_text
from verl_doctor.toolkit.output import write
from verl_doctor.toolkit.result import Report, document
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.streams import give_up_stdout
from verl_doctor.toolkit.target import UsageError


def show(
    report: Report,
    form: str,
    output: Path | None,
    *,
    verbose: bool,
    rules: Iterable[Check] = (),
    code: int = 0,
) -> None:
    """Write the report to stdout, or to the file that the user named. Raises UsageError when that cannot be written.

    `rules` are those that were there, and `code` is what the command will end with: SARIF tells of both.
    """
    if output is None:
        try:
            _write(report, form, sys.stdout, verbose, rules, code)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            give_up_stdout()
            done = "; verl-doctor undo --list shows what was changed" if report.applied else ""
            raise UsageError(f"the report cannot be written to stdout: {error.strerror}{done}") from None
        return
    whole = StringIO()
    _write(report, form, whole, verbose, rules, code)
    write(output, whole.getvalue())


def _write(report: Report, form: str, file: TextIO, verbose: bool, rules: Iterable[Check], code: int) -> None:
    if form == "text":
        console = console_for(file)
        for line in render_text.render(report, verbose=verbose, width=width_of(console)):
            console.print(line, soft_wrap=True)
    elif form == "json":
        file.write(json.dumps(document(report), indent=2) + "\n")
    elif form == "markdown":
        file.writelines(f"{line}\n" for line in render_markdown.render(report))
    elif form == "junit":
        from verl_doctor.toolkit import render_junit  # noqa: PLC0415 - the XML library is slow to load

        file.write(render_junit.render(report))
    elif form == "sarif":
        from verl_doctor.toolkit import render_sarif  # noqa: PLC0415 - few ask for it

        file.write(render_sarif.render(report, rules, Path.cwd(), code))
    else:
        from verl_doctor.toolkit import render_github  # noqa: PLC0415 - see above

        file.writelines(f"{line}\n" for line in render_github.render(report, Path.cwd()))


def width_of(console: Console) -> int | None:
    """The columns of a terminal; None for a pipe, in which nothing is wrapped."""
    return console.width if console.is_terminal else None


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the command end as it does when it writes without rich, which would end it with 1."""
        raise BrokenPipeError


def console_for(file: TextIO) -> Console:
    """A console that adds no markup of its own, and colours only on a terminal."""
    return _Console(file=file, highlight=False, markup=False, emoji=False)
