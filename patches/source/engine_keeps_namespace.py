"""Fix for RAY122: verl's engine process looks for its workers in their namespace."""

from __future__ import annotations

from verl_doctor.patches.source._engine_edit import NEEDED, RESTART, UPSTREAM, pass_ray_address
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix(
    "engine-keeps-namespace",
    repairs="RAY122",
    safety="safe",
    upstream=UPSTREAM,
    needed=NEEDED,
    restart=RESTART,
)
def engine_keeps_namespace(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Let the engine process search the namespace of its workers."""
    return pass_ray_address(finding, sources, marker.comment("RAY122"))
