"""Fix for CFG116: let bash expand the aliases that a script defines and calls."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.edit.command_edit import with_aliases
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding, Location


@fix("aliases-expanded", repairs="CFG116", safety="safe")
def aliases_expanded(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Let bash expand the aliases that a script defines and calls.

    In a script it does so only after `shopt -s expand_aliases`, which is written above the alias.
    """
    places = {Location(error.path, error.line): error.name for error in launch.stopped}
    name = places.get(finding.location) if finding.location else None
    if not name:
        return Refusal("the finding names no alias")
    return edited_file(
        finding, sources, lambda path, before: with_aliases(before, path, name, marker.comment("CFG116"))
    )
