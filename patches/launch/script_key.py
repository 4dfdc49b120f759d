"""Fix for CFG101: write the key that this verl has into the launch script."""

from __future__ import annotations

from verl_doctor.checks.configuration._verl_keys import certain
from verl_doctor.patches.shared.launch_lines import edit_lines
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.edit.line_edit import LineEdit
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding, Location, Subject
from verl_doctor.toolkit.sources.python.edit import CannotEdit


@fix("script-key", repairs="CFG101", safety="safe")
def script_key(
    finding: Finding, launch: Launch, configuration: Configuration, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Write the key that this verl has into the launch script.

    Only for a key that verl renamed without changing its meaning, or one that lacks the `+` of a section for
    the user's own keys. The unchanged script stops before anything starts.
    """

    def correct(place: Location) -> LineEdit:
        found = [
            (word.key, new)
            for word in configuration.overrides
            if (word.path, word.line) == (place.path, place.line)
            and finding.subject == Subject("setting", word.key, word.text)
            and (new := certain(word, configuration))
        ]
        if len(found) != 1:
            raise CannotEdit(f"{place}: this line does not contain this key exactly once; edit it by hand")
        return LineEdit(place.line or 0, *found[0])

    return edit_lines(finding, launch, sources, marker.comment("CFG101"), correct)
