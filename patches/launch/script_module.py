"""Fix for PY113: write the module that this verl has into the launch script."""

from __future__ import annotations

from verl_doctor.patches.shared.launch_lines import edit_lines
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.edit.line_edit import LineEdit
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding, Location


@fix("script-module", repairs="PY113", safety="safe")
def script_module(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Write the module that this verl has into the launch script.

    Only a module with almost the same name. The unchanged script stops before anything starts.
    """
    if finding.subject is None or not finding.subject.detail:
        return Refusal("this verl has no module with a similar name")
    module, near = finding.subject.name, finding.subject.detail

    def correct(place: Location) -> LineEdit:
        return LineEdit(place.line or 0, module, near)

    return edit_lines(finding, launch, sources, marker.comment("PY113"), correct)
