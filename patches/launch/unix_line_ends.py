"""Fix for CFG107: give a launch script Unix line endings."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.rule import Finding


@fix("unix-line-ends", repairs="CFG107", safety="safe")
def unix_line_ends(finding: Finding, sources: SourceFiles) -> list[Change] | Refusal:
    """Remove the carriage return at the end of each line.

    Nothing else changes; a carriage return within a line stays.
    """
    changes = edited_file(finding, sources, lambda _, before: before.replace(b"\r\n", b"\n"))
    return changes or Refusal("no line has a Windows line ending now")
