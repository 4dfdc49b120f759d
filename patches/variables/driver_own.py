"""Fix for CUDA104: let the loader find the driver's own library first."""

from __future__ import annotations

from verl_doctor.patches.shared.driver_links import loaded_first
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.rule import Finding


@fix("driver-own", repairs="CUDA104", safety="safe", restart="Ray and the job")
def driver_own(_: Finding, libcuda: LibCuda) -> list[Change] | Refusal:
    """Let the loader find the driver's own library first.

    Only in the environment of the job, on this node: other nodes may have the driver elsewhere.
    """
    return loaded_first(
        libcuda, "CUDA does not start with the libcuda that is found first, but it does with the driver's own"
    )
