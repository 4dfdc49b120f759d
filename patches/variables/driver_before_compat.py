"""Fix for CUDA103: let the loader find the driver's library before an older one."""

from __future__ import annotations

from verl_doctor.patches.shared.driver_links import loaded_first
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.rule import Finding


@fix("driver-before-compat", repairs="CUDA103", safety="safe", restart="Ray and the job")
def driver_before_compat(_: Finding, libcuda: LibCuda) -> list[Change] | Refusal:
    """Let the loader find the driver's library before an older one.

    Only in the environment of the job, on this node: other nodes may have the driver elsewhere.
    """
    return loaded_first(libcuda, "a libcuda older than the driver would be loaded")
