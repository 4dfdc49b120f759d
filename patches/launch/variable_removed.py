"""Fix for ENV101: remove a variable that nothing reads any more from launch files and the shell."""

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


@fix("variable-removed", repairs="ENV101", safety="safe")
def variable_removed(
    finding: Finding,
    launch: Launch | Unknown,
    readers: VariableReaders,
    variables: Variables,
    sources: SourceFiles,
    marker: Marker,
) -> list[Change] | Refusal:
    """Remove a variable that nothing reads any more.

    The line that sets it is commented out if it does nothing else: `export NAME=value`, `NAME=value`, `ENV
    NAME=value`, or an entry of `env_vars`. If the shell exports it, the environment file unsets it.
    """

    def comment_out(place: Location) -> LineEdit:
        return LineEdit(place.line or 0, variable_at(place, launch, readers).name)

    changes = edit_lines(finding, launch, sources, marker.comment("ENV101"), comment_out)
    name = variable_of(finding)
    if isinstance(changes, list) and in_shell(name, variables, launch):
        changes.append(SetVariable(name, None))
    return changes
