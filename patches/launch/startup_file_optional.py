"""Fix for CFG116: source a startup file of the user's shell only if it exists."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.edit.command_edit import only_if_it_exists
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("startup-file-optional", repairs="CFG116", safety="unsafe")
def startup_file_optional(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Source a startup file of the user's shell, such as ~/.bashrc, only if it exists.

    Where it does, the script runs as before. Unsafe, although it can be undone: what the file would set is
    missing on this machine.
    """
    line = finding.location.line if finding.location else None
    if not line:
        return Refusal("the finding names no line")
    return edited_file(
        finding,
        sources,
        lambda path, before: only_if_it_exists(before, path, line, marker.comment("CFG116")),
        "the file does not exist here: what it would set is missing",
    )
