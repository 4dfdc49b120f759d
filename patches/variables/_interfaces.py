"""Shared by the fixes of NET101 to NET105: set a variable to a network interface.

It is the interface that leads to the other nodes. The variable is set where it is set now.
"""

from __future__ import annotations

from functools import partial

from verl_doctor.checks.network._interfaces import usable
from verl_doctor.checks.shared.variables import variable_of
from verl_doctor.patches.shared.launch_lines import edit_lines
from verl_doctor.toolkit.change import Change, Fix, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.connections.network_variables import NCCL
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.edit.line_edit import LineEdit
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding, Location
from verl_doctor.toolkit.sources.python.edit import CannotEdit


def set_interface(variable: str, network: Network, nodes: JobNodes, otherwise: str) -> list[Change] | Refusal:
    """Set the variable to this node's interface. `otherwise` states what would be used without it."""
    name = usable(network, nodes)
    if not name:
        return Refusal(
            "unknown which interface leads to the other nodes: there is neither a route to the head nor "
            "a default route"
        )
    why = f"{name} leads to the other nodes; {otherwise}"
    return [SetVariable(variable, _value(variable, name), why, node_only=True)]


def interface_fix(identifier: str, *, repairs: str, title: str) -> Fix:
    """Return the fix for a variable with a wrong value: in the launch file line that sets it, if any.

    Unsafe, although it can be undone: a launch file is often shared by nodes whose interfaces have other
    names.
    """

    def plan(
        finding: Finding,
        network: Network,
        nodes: JobNodes,
        launch: Launch | Unknown,
        sources: SourceFiles,
        marker: Marker,
    ) -> list[Change] | Refusal:
        variable, name = variable_of(finding), usable(network, nodes)
        if finding.location is None or not name or isinstance(launch, Unknown):
            return set_interface(variable, network, nodes, "the present value does not")
        edit = partial(_edit, launch, variable, _value(variable, name))
        return edit_lines(finding, launch, sources, marker.comment(repairs), edit)

    plan.__doc__ = title
    return fix(identifier, repairs=repairs, safety="unsafe", restart="Ray, on this node")(plan)


def _edit(launch: Launch, variable: str, value: str, place: Location) -> LineEdit:
    """Put the new value into the line of the launch file that sets the variable.

    Raises CannotEdit if the old value is unknown.
    """
    old = [
        setting.value
        for setting in launch.settings
        if (setting.name, setting.path, setting.line) == (variable, place.path, place.line) and setting.value
    ]
    if not old:
        raise CannotEdit(f"{place}: this line does not set {variable} to a known value")
    return LineEdit(place.line or 0, old[0], value)


def _value(variable: str, name: str) -> str:
    """Return the name as the variable's value: "=" makes NCCL match the whole name instead of a prefix."""
    return f"={name}" if variable == NCCL else name
