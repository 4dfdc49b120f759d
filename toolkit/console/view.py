"""Shows a command's result in the chosen form, on stdout or in a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.console.formats import HEADLINE
from verl_doctor.toolkit.console.masked import Mask, mask_of, masked, unmasked
from verl_doctor.toolkit.console.streams import CannotPrintError, give_up_stdout
from verl_doctor.toolkit.text import wrapped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Variables that make rich treat a pipe as a terminal.
_AS_A_TERMINAL = frozenset({"FORCE_COLOR", "TTY_COMPATIBLE"})
_PROMPT = 1  # line of a terminal that the shell's prompt takes afterwards


def show(answer: Answer, form: str, file: Path | None, *, next_step: str = "") -> int:
    """Write to stdout, or to the file that the user named, and return the exit code.

    Raises CannotPrintError when stdout cannot be written, and UsageError when the file cannot.

    `next_step` is what to do when the output was lost.
    """
    if file is None:
        try:
            write(answer, form, sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            give_up_stdout()
            done = f"; {next_step}" if next_step else ""
            raise CannotPrintError(
                f"the report cannot be written to stdout: {error.strerror}{done}"
            ) from None
    else:
        whole = StringIO()
        write(answer, form, whole)
        output.write(file, whole.getvalue())
    return answer.exit_code()


def write(answer: Answer, form: str, file: TextIO) -> None:
    """Write a result in one of its forms, with its secrets masked.

    Additional forms mask theirs before rendering.
    """
    if form in _WRITERS:
        _WRITERS[form](answer, unmasked(file))
    else:
        unmasked(file).write(answer.other_forms()[form]())


def _write_text(answer: Answer, file: TextIO) -> None:
    console = _console(file)
    width = _columns(console)
    mask = mask_of(os.environ)
    if width is not None:  # a line break may separate a secret from its name
        mask = mask.and_those_in(map(str, answer.text_lines(None)))
    written = 0
    for line in answer.text_lines(width):
        written += 1
        _write_line(line, console, file, mask)
    if console and width and written > console.height - _PROMPT and not answer.ends_with_verdict():
        _write_line("", console, file, mask)
        for row in wrapped(mask.text(str(_verdict_of(answer))), width, hanging="  "):
            _write_line(row, console, file, mask)


def _write_line(line: Text | str, console: Console | None, file: TextIO, mask: Mask) -> None:
    shown = mask.text(str(line))
    if console is None or isinstance(line, str):
        file.write(f"{shown}\n")
    else:
        from rich.text import Text  # noqa: PLC0415 - see _console

        console.print(line if shown == line.plain else Text(shown, line.style), soft_wrap=True)


def _write_headline(answer: Answer, file: TextIO) -> None:
    """Write the first line of the text, which holds the verdict. It is never wrapped."""
    _write_line(_verdict_of(answer), _console(file), file, mask_of(os.environ))


def width_of(file: TextIO) -> int | None:
    """Return the columns of a terminal; None for a pipe, in which nothing is wrapped."""
    return _columns(_console(file))


def _columns(console: Console | None) -> int | None:
    return console.width if console and console.is_terminal else None


def _console(file: TextIO) -> Console | None:
    """Return rich's console for a terminal; None for a pipe, which needs nothing of rich (slow to load)."""
    if not file.isatty() and os.environ.keys().isdisjoint(_AS_A_TERMINAL):
        return None
    from verl_doctor.toolkit.console.terminal import console_for  # noqa: PLC0415

    return console_for(file)


def _verdict_of(answer: Answer) -> Text | str:
    return next((line for line in answer.text_lines(None) if str(line).strip()), "")


def _write_json(answer: Answer, file: TextIO) -> None:
    file.write(json.dumps(masked(answer.document()), indent=2) + "\n")


def _write_markdown(answer: Answer, file: TextIO) -> None:
    mask = mask_of(os.environ)
    file.writelines(f"{mask.text(line)}\n" for line in answer.markdown_lines())


_WRITERS: Mapping[str, Callable[[Answer, TextIO], None]] = {
    "text": _write_text,
    HEADLINE: _write_headline,
    "json": _write_json,
    "markdown": _write_markdown,
}
