"""Fix for CFG127: export a variable that the script sets, and that a setting reads."""

from __future__ import annotations

from verl_doctor.patches.shared.launch_lines import line_before_command, sets_variable
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("exported-variable", repairs="CFG127", safety="safe")
def exported_variable(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Export a variable that the script sets, before the training command.

    `${oc.env:NAME}` is read by the job's own process, which gets exported variables only.
    """
    names = finding.subject.detail.split(",") if finding.subject and finding.subject.detail else []
    for name in names:
        if not sets_variable(name, launch, sources):
            return Refusal(f"the script does not set {name}; only the user knows its value")
    why = f"the script sets {' and '.join(names)} and does not export it"
    return line_before_command(f"export {' '.join(names)}", launch, sources, marker.comment("CFG127"), why)
