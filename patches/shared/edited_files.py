"""Turns a finding into one change for each file that it names.

A file is edited as a whole, or refused with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, SourceText
from verl_doctor.toolkit.sources.python.source import Unreadable

_GENERATED = re.compile(
    (
        rb"^[ \t]*(?:#|//|;)[^\n]*\b(?:do not (?:edit|modify)|auto-?generated|(?:file|script) (?:is"
        rb"|was) generated|generated (?:by|from|with)\b)"
    ),
    re.IGNORECASE | re.MULTILINE,
)
_HEAD = 2000  # bytes in which a file may state that it is generated


def paths_of(finding: Finding) -> list[str]:
    """Return the files that a finding's locations name, without duplicates."""
    return sorted({place.path for place in (finding.location, *finding.also) if place is not None})


def edited_file(
    finding: Finding, sources: SourceFiles, edit: Callable[[str, bytes], bytes], why: str = ""
) -> list[Change] | Refusal:
    """Return the change of the single file that a finding names."""
    if finding.location is None:
        return Refusal("the finding names no file")
    return edited_files([finding.location.path], sources, edit, why)


def edited_files(
    paths: Iterable[str], sources: SourceFiles, edit: Callable[[str, bytes], bytes], why: str = ""
) -> list[Change] | Refusal:
    """Return one change for each file, or why one of them cannot be read or edited.

    An unchanged file gets none. `edit` returns the new content, given the path and the old content. It may
    raise CannotEdit.
    """
    changes: list[Change] = []
    for path in paths:
        before = sources.read(path)
        if isinstance(before, Unreadable):
            return Refusal(before.reason)
        if not path.endswith(".py") and _GENERATED.search(before[:_HEAD]):
            return Refusal(
                f"{path} is a generated file, according to its first lines; edit its source instead"
            )
        try:
            after = edit(path, before)
        except CannotEdit as reason:
            return Refusal(str(reason))
        if after != before:
            changes.append(ReplaceFile(Path(path), before, after, why))
    return changes


def edited_sources(
    paths: Iterable[str], sources: SourceFiles, edit: Callable[[SourceText], bytes]
) -> list[Change] | Refusal:
    """Do the same for Python: `edit` gets the text and its syntax tree."""
    return edited_files(paths, sources, lambda path, before: edit(SourceText(before, path)))
