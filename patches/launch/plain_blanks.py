"""Fix for CFG103: write blanks in place of non-breaking spaces."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.edit.command_edit import with_plain_blanks
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("plain-blanks", repairs="CFG103", safety="safe")
def plain_blanks(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Write blanks in place of non-breaking spaces.

    U+00A0, as copied from a web page, is a letter to the shell. Quoted texts stay as they are.
    """
    line = finding.location.line if finding.location else None
    if not line:
        return Refusal("the finding names no line")
    return edited_file(
        finding, sources, lambda path, before: with_plain_blanks(before, path, line, marker.comment("CFG103"))
    )
