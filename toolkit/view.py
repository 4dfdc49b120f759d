"""Showing the answer of a command in the form that is asked for, on stdout or in a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from verl_doctor.toolkit import output
from verl_doctor.toolkit.streams import give_up_stdout
from verl_doctor.toolkit.target import UsageError

View = Mapping[str, Callable[[TextIO], None]]
"""What writes an answer, by the name of the form."""


def as_view(
    document: Callable[[], Mapping[str, Any]],
    markdown: Callable[[], Iterable[str]],
    text: Callable[[int | None], Iterable[Text]],
) -> View:
    """The forms that every answer has. `text` is told the width of the terminal, None for a pipe."""

    def write_text(file: TextIO) -> None:
        console = console_for(file)
        for line in text(width_of(console)):
            console.print(line, soft_wrap=True)

    def write_json(file: TextIO) -> None:
        file.write(json.dumps(document(), indent=2) + "\n")

    def write_markdown(file: TextIO) -> None:
        file.writelines(f"{line}\n" for line in markdown())

    return {"text": write_text, "json": write_json, "markdown": write_markdown}


def show(view: View, form: str, file: Path | None, *, next_step: str = "") -> None:
    """Write to stdout, or to the file that the user named. Raises UsageError when that cannot be written.

    `next_step` is what to do when nobody could be told.
    """
    if file is None:
        try:
            view[form](sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            give_up_stdout()
            done = f"; {next_step}" if next_step else ""
            raise UsageError(f"the report cannot be written to stdout: {error.strerror}{done}") from None
    else:
        whole = StringIO()
        view[form](whole)
        output.write(file, whole.getvalue())


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
