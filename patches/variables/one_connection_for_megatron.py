"""Fix for ENV114: allow a single connection to each device, for Megatron."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, SetVariable, fix
from verl_doctor.toolkit.rule import Finding


@fix(
    "one-connection-for-megatron",
    repairs="ENV114",
    safety="safe",
    upstream="NVIDIA/Megatron-LM#702",
    restart="Ray on every node: source the file before ray start",
)
def one_connection_for_megatron(_: Finding) -> list[Change]:
    """Allow one connection to each device, so that kernels start in the order Megatron queues them."""
    why = (
        "Megatron-LM relies on the order of kernels to overlap communication, and refuses tensor "
        "parallelism without it"
    )
    return [SetVariable("CUDA_DEVICE_MAX_CONNECTIONS", "1", why, "the GPUs are of Blackwell or newer")]
