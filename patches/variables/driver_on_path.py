"""Fix for CUDA101: let the loader search the driver's folder."""

from __future__ import annotations

from verl_doctor.patches.shared.driver_links import loaded_first
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.rule import Finding


@fix("driver-on-path", repairs="CUDA101", safety="safe", restart="Ray and the job")
def driver_on_path(_: Finding, libcuda: LibCuda) -> list[Change] | Refusal:
    """Let the loader search the driver's folder first.

    Only in the environment of the job, on this node: other nodes may have the driver elsewhere.
    """
    return loaded_first(libcuda, "the loader does not search the folder of the driver's libcuda")
