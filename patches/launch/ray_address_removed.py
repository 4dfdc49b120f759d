"""Fix for RAY101: remove an address at which no Ray responds, so that the job starts its own."""

from __future__ import annotations

from verl_doctor.patches.shared.launch_lines import edit_lines
from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.edit.line_edit import LineEdit
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding

_VARIABLE = "RAY_ADDRESS"


@fix("ray-address-removed", repairs="RAY101", safety="unsafe")
def ray_address_removed(
    finding: Finding, addresses: RayAddresses, launch: Launch | Unknown, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Remove an address at which no Ray responds.

    Unsafe, although it can be undone: the job starts its own Ray, on this machine only. The line that exports
    RAY_ADDRESS is commented out; if the shell exports it, the environment file unsets it.
    """
    place = addresses.taken
    if place is None or place.source != _VARIABLE:
        return Refusal("the address comes from a setting other than RAY_ADDRESS; correct it by hand")
    if not place.path:
        return [SetVariable(_VARIABLE, None, "no Ray responds there", node_only=True)]
    return edit_lines(
        finding,
        launch,
        sources,
        marker.comment("RAY101"),
        lambda where: LineEdit(where.line or 0, _VARIABLE),
    )
