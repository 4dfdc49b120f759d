"""Fix for RAY121: verl's engine process joins the Ray of the actor that started it, instead of another."""

from __future__ import annotations

from verl_doctor.patches.source._engine_edit import NEEDED, RESTART, UPSTREAM, pass_ray_address
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix(
    "engine-leaves-other-ray",
    repairs="RAY121",
    safety="safe",
    upstream=UPSTREAM,
    needed=NEEDED,
    restart=RESTART,
)
def engine_leaves_other_ray(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Let the engine process join its parent actor's Ray, regardless of RAY_ADDRESS and address files."""
    return pass_ray_address(finding, sources, marker.comment("RAY121"))
