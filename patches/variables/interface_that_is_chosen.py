"""Fix for NET105: choose the interface, instead of leaving it to gloo and NCCL."""

from __future__ import annotations

from verl_doctor.checks.shared.variables import variable_of
from verl_doctor.patches.variables._interfaces import set_interface
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.rule import Finding


@fix("interface-that-is-chosen", repairs="NET105", safety="safe", restart="Ray, on this node")
def interface_that_is_chosen(finding: Finding, network: Network, nodes: JobNodes) -> list[Change] | Refusal:
    """Choose the interface that leads to the other nodes, instead of leaving it to gloo and NCCL."""
    otherwise = "the default leads to containers or tunnels"
    return set_interface(variable_of(finding), network, nodes, otherwise)
