"""Fix for NET130: set the variables with which NCCL was found to work here."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.cuda.collective import Collective
from verl_doctor.toolkit.rule import Finding

_WHY = {
    "NCCL_NVLS_ENABLE": "the multicast of these NVSwitches does not work for NCCL here",
    "NCCL_CUMEM_HOST_ENABLE": "NCCL does not work here with host memory from CUDA's cuMem calls",
    "NCCL_P2P_DISABLE": (
        "these GPUs cannot access each other's memory, although the driver may report that they can"
    ),
    "NCCL_SHM_DISABLE": "NCCL cannot use shared memory here",
}


@fix("nccl-workaround", repairs="NET130", safety="safe", restart="Ray and the job")
def nccl_workaround(_: Finding, collective: Collective) -> list[Change] | Refusal:
    """Set the variables with which NCCL was found to work here.

    For this machine only: elsewhere they may cost most of the bandwidth without a benefit.
    """
    if not collective.remedy:
        return Refusal("NCCL failed with each of the variables that were tried")
    until = f"the driver or NCCL {collective.nccl} is repaired: NET132 reports when NCCL works without it"
    return [SetVariable(name, value, _WHY[name], until, node_only=True) for name, value in collective.remedy]
