"""Fix for CFG116 and CFG127: assign to a variable without blanks around the sign."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.hollow_paths import HollowPaths
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.edit.command_edit import joined_assignment
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("assignment-joined", repairs=("CFG116", "CFG127"), safety="safe")
def assignment_joined(
    finding: Finding, paths: HollowPaths | Unknown, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Assign to a variable without blanks around the sign.

    Bash takes `NAME = value` for a program NAME, and there is none of this name.
    """
    place, names = finding.location, finding.subject.detail.split(",") if finding.subject else []
    spaced = () if isinstance(paths, Unknown) else paths.spaced
    lines = [(line.path, line.line, line.name) for line in spaced if line.name in names]
    code = "CFG127" if lines else "CFG116"
    lines += [
        (error.path, error.line, error.name)
        for error in launch.stopped
        if not lines and place and error.hurdle == "blank" and error.path == place.path
    ]
    if not lines:
        return Refusal("no line assigns to this variable with a blank before the sign")

    def joined(path: str, before: bytes) -> bytes:
        for _, line, name in sorted((line for line in lines if line[0] == path), reverse=True):
            before = joined_assignment(before, path, line, name, marker.comment(code))
        return before

    return edited_files(sorted({path for path, _, _ in lines}), sources, joined)
