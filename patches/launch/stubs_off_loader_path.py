"""Fix for ENV105: comment out the line of a launch script that puts CUDA's stubs on the loader's path."""

from __future__ import annotations

from verl_doctor.patches.shared.stub_lines import comment_out
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
    restart="Ray, if the line was there when it was started",
)
def stubs_off_loader_path(
    finding: Finding, launch: Launch | Unknown, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Comment out the line that puts CUDA's stubs on the loader's path.

    Only a line that adds nothing else. A job that links is judged again: CUDA105 says when Triton finds no libcuda then.
    """
    return comment_out(finding, launch, sources, marker.comment("ENV105"))
