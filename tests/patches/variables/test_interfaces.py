"""Fixes of NET101 to NET106: which interface is named, and where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.checks.network.host_address_not_own import host_address_not_own
from verl_doctor.checks.network.hostname_is_loopback import hostname_is_loopback
from verl_doctor.checks.network.hostname_leads_nowhere import hostname_leads_nowhere
from verl_doctor.checks.network.interface_leads_nowhere import interface_leads_nowhere
from verl_doctor.checks.network.interface_left_to_chance import interface_left_to_chance
from verl_doctor.checks.network.interface_unknown import interface_unknown
from verl_doctor.checks.shared.network_examples import BRIDGE, ETH0, LO, NO_RDMA, TWO, machine, named
from verl_doctor.patches.variables.gloo_interface import gloo_interface
from verl_doctor.patches.variables.gloo_interface_for_lost_name import gloo_interface_for_lost_name
from verl_doctor.patches.variables.host_address import host_address
from verl_doctor.patches.variables.interface_name import interface_name
from verl_doctor.patches.variables.interface_that_is_chosen import interface_that_is_chosen
from verl_doctor.patches.variables.interface_that_leads_out import interface_that_leads_out
from verl_doctor.toolkit.change import Change, Fix, Refusal, ReplaceFile, SetVariable
from verl_doctor.toolkit.collectors.connections.network_variables import network_variables
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.target import Target


def plan(
    rule: Check, fix: Fix, network: Network, nodes: JobNodes = TWO, script: Path | None = None, **shell: str
) -> list[Change] | Refusal:
    """Let the rule find, and the fix plan for its only finding."""
    read = Absent("none")
    if script is not None:
        read = launch.collect(Target(Path("/p"), "--python", files=(script,)), Machine(environ={}))
        assert isinstance(read, Launch)
    known: dict[str, Any] = {
        "network": network,
        "nodes": nodes,
        "rdma": NO_RDMA[1],
        "resources": Resources((Gpu("NVIDIA H200", 143771),), 64, None),
        "variables": network_variables.collect(
            Variables(shell), read, Unknown("not read"), Machine(environ={})
        ),
        "launch": read,
        "sources": SourceFiles(),
        "marker": Marker(),
    }
    (finding,) = rule.judge(**{need.parameter: known[need.parameter] for need in rule.needs})
    assert finding.fix == fix.id
    return fix.plan(finding, **{need.parameter: known[need.parameter] for need in fix.needs})


def test_address_of_another_node_is_unset() -> None:
    (change,) = plan(host_address_not_own, host_address, machine(LO, ETH0), TWO, VLLM_HOST_IP="10.0.0.77")
    assert isinstance(change, SetVariable)
    assert (change.name, change.value, change.node_only) == ("VLLM_HOST_IP", None, True)


def test_gloo_gets_an_interface_if_the_name_does_not_resolve() -> None:
    lost = named(failed="Name or service not known")
    (change,) = plan(hostname_leads_nowhere, gloo_interface_for_lost_name, lost)
    assert isinstance(change, SetVariable)
    assert (change.name, change.value, change.node_only) == ("GLOO_SOCKET_IFNAME", "eth0", True)


def test_gloo_is_recognised_by_its_name() -> None:
    (change,) = plan(hostname_is_loopback, gloo_interface, named("127.0.1.1"))
    assert isinstance(change, SetVariable)
    assert (change.name, change.value, change.node_only) == ("GLOO_SOCKET_IFNAME", "eth0", True)


def test_nccl_gets_the_full_interface_name() -> None:
    (change,) = plan(interface_left_to_chance, interface_that_is_chosen, machine(LO, BRIDGE, ETH0))
    assert isinstance(change, SetVariable)
    assert (change.name, change.value) == ("NCCL_SOCKET_IFNAME", "=eth0")


def test_shell_variable_is_set_again() -> None:
    (change,) = plan(
        interface_leads_nowhere, interface_that_leads_out, named("10.0.0.5"), GLOO_SOCKET_IFNAME="lo"
    )
    assert isinstance(change, SetVariable)
    assert (change.name, change.value) == ("GLOO_SOCKET_IFNAME", "eth0")


@pytest.mark.parametrize("written", ["^docker0,lo", "'^docker0,lo'", '"^docker0,lo"'])
def test_script_line_is_corrected(tmp_path: Path, written: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"export GLOO_SOCKET_IFNAME={written}\npython -m verl.trainer.main_ppo a=1\n")
    (change,) = plan(interface_unknown, interface_name, named("10.0.0.5"), script=script)
    assert isinstance(change, ReplaceFile)
    now = written.replace("^docker0,lo", "eth0")
    assert change.after.decode().splitlines()[1] == f"export GLOO_SOCKET_IFNAME={now}  # verl-doctor: NET103"


def test_unknown_interface_is_not_guessed() -> None:
    lost = replace(TWO, interface="")
    refused = plan(hostname_is_loopback, gloo_interface, named("127.0.1.1"), lost)
    assert isinstance(refused, Refusal)
    assert "neither a route to the head" in refused.reason
