"""Fix for ENV102: correct the name of a misspelt variable in a launch file or in the shell."""

from __future__ import annotations

from verl_doctor.checks.shared.variables import in_shell, variable_of
from verl_doctor.patches.shared.launch_lines import edit_lines, variable_at
from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.edit.line_edit import LineEdit
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding, Location


@fix("variable-misspelt", repairs="ENV102", safety="unsafe")
def variable_misspelt(
    finding: Finding,
    launch: Launch | Unknown,
    readers: VariableReaders,
    variables: Variables,
    sources: SourceFiles,
    marker: Marker,
) -> list[Change] | Refusal:
    """Correct the name of a misspelt variable.

    Unsafe, although it can be undone: the variable has no effect now, and will have the intended one.
    """

    def correct(place: Location) -> LineEdit:
        reading = variable_at(place, launch, readers)
        return LineEdit(place.line or 0, reading.name, reading.near)

    changes = edit_lines(finding, launch, sources, marker.comment("ENV102"), correct)
    name = variable_of(finding)
    reading = readers.get(name)
    if isinstance(changes, Refusal) or reading is None or not in_shell(name, variables, launch):
        return changes
    if name not in variables.values:
        return Refusal(f"the value of {name} may be a secret, so it was not read; rename it by hand")
    wanted = SetVariable(reading.near, variables.get(name), f"{name} is set instead, which nothing reads")
    return [*changes, wanted, SetVariable(name, None)]
