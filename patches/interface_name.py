"""Fix for NET103: name an interface that is here."""

from __future__ import annotations

from verl_doctor.patches._interfaces import correct_interface
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.fact_job_nodes import JobNodes
from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.fact_network import Network
from verl_doctor.toolkit.fact_sources import SourceFiles
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("interface-name", repairs="NET103", safety="unsafe", restart="Ray, on this node")
def interface_name(
    finding: Finding,
    network: Network,
    nodes: JobNodes,
    launch: Launch | Unknown,
    sources: SourceFiles,
    marker: Marker,
) -> list[Change] | Refusal:
    """Name an interface that is here, in the syntax that the variable's reader knows.

    Unsafe, although it can be undone: a launch file is often shared by nodes whose interfaces have other names.
    """
    return correct_interface(finding, network, nodes, launch, sources, marker, "NET103")
