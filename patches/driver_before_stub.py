"""Fix for CUDA102: let the loader find the driver's library before a stub."""

from __future__ import annotations

from verl_doctor.patches._driver_links import loaded_first
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.fact_libcuda import LibCuda
from verl_doctor.toolkit.rule import Finding


@fix("driver-before-stub", repairs="CUDA102", safety="safe", restart="Ray and the job")
def driver_before_stub(_: Finding, libcuda: LibCuda) -> list[Change] | Refusal:
    """Let the loader find the driver's library before a stub.

    Only in the environment of the job, on this node: other nodes may have the driver elsewhere.
    """
    return loaded_first(libcuda, "a stub would be loaded in place of the driver's libcuda")
