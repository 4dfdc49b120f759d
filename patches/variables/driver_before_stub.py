"""Fix for CUDA102: let the loader find the driver's library before a stub."""

from __future__ import annotations

from verl_doctor.patches.shared.driver_links import loaded_first
from verl_doctor.patches.shared.loader_path_lines import is_stubs, leave_out
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("driver-before-stub", repairs="CUDA102", safety="safe", restart="Ray and the job")
def driver_before_stub(
    finding: Finding, libcuda: LibCuda, launch: Launch | Unknown, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Let the loader find the driver's library before a stub.

    If a line of a launch script adds the stub's folder, it is removed from that line. Otherwise the driver's
    folder comes first in the environment of the job, on this node only: other nodes may have the driver
    elsewhere.
    """
    if finding.location is not None:
        return leave_out(finding, launch, sources, marker.comment("CUDA102"), is_stubs)
    return loaded_first(libcuda, "a stub would be loaded instead of the driver's libcuda")
