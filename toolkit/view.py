"""Showing the answer of a command as text, as JSON or as Markdown, on stdout or in a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from rich.text import Text

from verl_doctor.toolkit import output
from verl_doctor.toolkit.render import console_for, width_of

View = Callable[[str, TextIO], None]
"""Writes an answer in one of the forms."""


def as_view(
    document: Callable[[], Mapping[str, Any]],
    markdown: Callable[[], Iterable[str]],
    text: Callable[[int | None], Iterable[Text]],
) -> View:
    """Write in the form that is asked for. `text` is told the width of the terminal, None for a pipe."""

    def write(form: str, file: TextIO) -> None:
        if form == "json":
            file.write(json.dumps(document(), indent=2) + "\n")
        elif form == "markdown":
            file.writelines(f"{line}\n" for line in markdown())
        else:
            console = console_for(file)
            for line in text(width_of(console)):
                console.print(line, soft_wrap=True)

    return write


def show(view: View, form: str, file: Path | None) -> None:
    """Write to stdout, or to the file that the user named."""
    if file is None:
        view(form, sys.stdout)
        sys.stdout.flush()
    else:
        whole = StringIO()
        view(form, whole)
        output.write(file, whole.getvalue())
