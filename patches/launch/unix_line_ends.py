"""Fix for CFG107: give a launch script the line ends of Unix."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.source import Unreadable


@fix("unix-line-ends", repairs="CFG107", safety="safe")
def unix_line_ends(finding: Finding, sources: SourceFiles) -> list[Change] | Refusal:
    """Take the carriage return from the end of each line.

    Nothing else is changed; a carriage return within a line stays.
    """
    if finding.location is None:
        return Refusal("the finding names no file")
    before = sources.read(finding.location.path)
    if isinstance(before, Unreadable):
        return Refusal(before.reason)
    after = before.replace(b"\r\n", b"\n")
    if after == before:
        return Refusal("no line ends as in Windows by now")
    return [ReplaceFile(Path(finding.location.path), before, after)]
