"""Fix for CUDA103: let the loader find the driver's library before an older one."""

from __future__ import annotations

from verl_doctor.patches.shared.driver_links import loaded_first
from verl_doctor.patches.shared.loader_path_lines import leave_out
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("driver-before-compat", repairs="CUDA103", safety="safe", restart="Ray and the job")
def driver_before_compat(
    finding: Finding, libcuda: LibCuda, launch: Launch | Unknown, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Let the loader find the driver's library before an older one.

    If a line of a launch script adds the older one's folder, it is removed from that line. Otherwise the
    driver's folder comes first in the environment of the job, on this node only: other nodes may have the
    driver elsewhere.
    """
    older = libcuda.loaded
    if finding.location is not None and older is not None:
        folders = {older.entry.rstrip("/"), older.folder}
        return leave_out(finding, launch, sources, marker.comment("CUDA103"), folders.__contains__)
    return loaded_first(libcuda, "a libcuda older than the driver would be loaded")
