"""Fix for NET102: set gloo's interface to the one that leads to the other nodes."""

from __future__ import annotations

from verl_doctor.patches.variables._interfaces import set_interface
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.connections.network_variables import GLOO
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.rule import Finding


@fix("gloo-interface-for-lost-name", repairs="NET102", safety="safe", restart="Ray, on this node")
def gloo_interface_for_lost_name(_: Finding, network: Network, nodes: JobNodes) -> list[Change] | Refusal:
    """Make gloo use the interface to the other nodes, since this machine's name does not lead there."""
    return set_interface(
        GLOO,
        network,
        nodes,
        "this machine's own name, which gloo uses by default, does not resolve to one of its addresses",
    )
