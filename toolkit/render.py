"""The forms of a report: those of every answer, and those that machines read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TextIO

from verl_doctor.toolkit import render_markdown, render_text
from verl_doctor.toolkit.result import Report, document
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.view import View, as_view


def view_of(report: Report, *, verbose: bool = False, rules: Iterable[Check] = (), code: int = 0) -> View:
    """All of `formats.FORMATS`.

    `rules` are those that were there, and `code` is what the command will end with: SARIF tells of both.
    """
    return {
        **as_view(
            lambda: document(report),
            lambda: render_markdown.render(report),
            lambda width: render_text.render(report, verbose=verbose, width=width),
        ),
        "junit": partial(_junit, report),
        "sarif": partial(_sarif, report, rules, code),
        "github": partial(_github, report),
    }


def _junit(report: Report, file: TextIO) -> None:
    from verl_doctor.toolkit import render_junit  # noqa: PLC0415 - the XML library is slow to load

    file.write(render_junit.render(report))


def _sarif(report: Report, rules: Iterable[Check], code: int, file: TextIO) -> None:
    from verl_doctor.toolkit import render_sarif  # noqa: PLC0415 - few ask for it

    file.write(render_sarif.render(report, rules, Path.cwd(), code))


def _github(report: Report, file: TextIO) -> None:
    from verl_doctor.toolkit import render_github  # noqa: PLC0415 - see above

    file.writelines(f"{line}\n" for line in render_github.render(report, Path.cwd()))
