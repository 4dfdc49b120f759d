"""Fix for ENV105: remove CUDA's stubs from the loader's path in a launch script."""

from __future__ import annotations

from verl_doctor.patches.shared.loader_path_lines import is_stubs, leave_out
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix(
    "stubs-off-loader-path",
    repairs="ENV105",
    safety="safe",
    restart="Ray, if it was started with this line",
)
def stubs_off_loader_path(
    finding: Finding, launch: Launch | Unknown, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Remove CUDA's stubs from the loader's path in the line that adds them.

    A line that adds nothing else is commented out. The job is checked again: CUDA105 reports if Triton then
    finds no libcuda to link with.
    """
    return leave_out(finding, launch, sources, marker.comment("ENV105"), is_stubs)
