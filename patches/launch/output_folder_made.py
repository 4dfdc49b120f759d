"""Fix for CFG116 and CFG124: make the folder of an output file before the training command."""

from __future__ import annotations

import shlex

from verl_doctor.patches.shared.launch_lines import line_before_command
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding, Location


@fix("output-folder-made", repairs=("CFG116", "CFG124"), safety="safe")
def output_folder_made(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Make the folder of an output file before it is opened.

    Neither the shell nor verl makes it for a log that output is redirected into, for the tracker `file` or
    for Ray's timeline. `mkdir -p` leaves an existing folder as it is.
    """
    error = next(
        (
            error
            for error in launch.stopped
            if error.hurdle == "output folder" and Location(error.path, error.line) == finding.location
        ),
        None,
    )
    subject = finding.subject
    folder = error.name if error else subject.name if subject and subject.kind == "folder" else ""
    if not folder:
        return Refusal("the finding names no folder")
    line = f"mkdir -p {shlex.quote(folder)}"
    comment = marker.comment("CFG116" if error else "CFG124")
    place = Location(error.path, error.line) if error else None
    return line_before_command(line, launch, sources, comment, f"{folder} does not exist", at=place)
