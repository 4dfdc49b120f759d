"""Fix for CFG132: remove a time limit that ends the job before its first step."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Launch
from verl_doctor.toolkit.edit.command_edit import without_time_limit
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("time-limit-removed", repairs="CFG132", safety="unsafe")
def time_limit_removed(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Remove a time limit that ends the job before its first step.

    `timeout 4` means four seconds. Unsafe, although it can be undone: the job runs until it ends.
    """
    place = finding.location
    if place is None or not place.line or place.path == COMMAND_LINE or launch.command is None:
        return Refusal("the time limit is in no file; remove it by hand")
    line = place.line
    return edited_file(
        finding,
        sources,
        lambda path, before: without_time_limit(before, path, line, marker.comment("CFG132")),
        "the job runs until it ends, without a time limit",
    )
