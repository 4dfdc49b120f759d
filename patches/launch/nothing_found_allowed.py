"""Fix for CFG116: let a script with `set -e` go on where a search for files finds nothing."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.edit.command_edit import allowed_to_fail
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("nothing-found-allowed", repairs="CFG116", safety="unsafe")
def nothing_found_allowed(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Let a script with `set -e` go on where a search for files finds nothing.

    `LAST=$(ls -d checkpoints/*)` fails before there is a checkpoint. `|| true` follows it. Unsafe, although
    it can be undone: the variable is empty then.
    """
    line = finding.location.line if finding.location else None
    if not line:
        return Refusal("the finding names no line")
    return edited_file(
        finding,
        sources,
        lambda path, before: allowed_to_fail(before, path, line, marker.comment("CFG116")),
        "where nothing is found, the variable is empty",
    )
