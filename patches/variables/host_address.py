"""Fix for NET106: let vLLM find this node's address by itself."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.rule import Finding


@fix("host-address", repairs="NET106", safety="safe", restart="Ray, on this node")
def host_address(_: Finding) -> list[Change] | Refusal:
    """Let vLLM find this node's address by itself: unset VLLM_HOST_IP."""
    why = "it is not this node's address, which vLLM determines from its default route"
    return [SetVariable("VLLM_HOST_IP", None, why, node_only=True)]
