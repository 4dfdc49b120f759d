"""Fix for CFG116: let a script with `set -e` go on after a command that has done its work and returns 1."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.edit.command_edit import allowed_to_fail
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("failure-allowed", repairs="CFG116", safety="safe")
def failure_allowed(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Let a script with `set -e` go on after a command that has done its work and returns 1.

    `read -d ''` returns 1 at the end of a here-document, having read it, and `((N++))` while N is 0. The
    command runs as before; `|| true` follows it.
    """
    line = finding.location.line if finding.location else None
    if not line:
        return Refusal("the finding names no line")
    return edited_file(
        finding, sources, lambda path, before: allowed_to_fail(before, path, line, marker.comment("CFG116"))
    )
