"""A healthy Ray with one fault at a time: exactly one rule about joining a cluster reports it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from support.machine_facts import known

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus
from verl_doctor.checks.shared.network_examples import ONE, TWO, named
from verl_doctor.checks.shared.ray import ADDRESS, MINE, a_cluster, a_node, joins, ray_place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.connections.ports import Listener, Ports, RequestedPorts
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.collectors.ray.addresses import AddressFile, RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.collectors.ray.match import RayMatch
from verl_doctor.toolkit.collectors.ray.tickets import RayTickets
from verl_doctor.toolkit.collectors.ray.token import RayToken
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import DEEP, Selection, judge
from verl_doctor.toolkit.facts import Absent

RULES = (*(f"RAY{number}" for number in range(101, 120)), "NET114", "NET116", "HOST116", "CFG111")
TAKEN = ray_place(source="address file")
DEAD = {"reply": "refused", "error": "Connection refused"}
GONE = replace(TAKEN, reply="refused")
WELL: dict[type, Any] = {
    RayAddresses: RayAddresses((TAKEN, ray_place(source="raylet")), (MINE,), "/tmp/ray"),
    RayClusters: joins(a_cluster()),
    RayToken: RayToken(by_itself=True),
    RayMatch: RayMatch(variable=True),
    LibraryTrees: LibraryTrees((Tree("/env/ray", "ray", "2.60.0", "site-packages"),)),
    Interpreter: PYTHON,
    Configuration: configured()[0],
    RayTickets: RayTickets(3, "base.py:192"),
    Launch: Launch((("run.sh", "shell script"),), command=Command("verl.trainer.main_ppo", (), "run.sh", 9)),
    JobNodes: ONE,
    JobHere: JobHere("a GPU is here"),
    Network: named("10.0.0.5"),
    Processes: Processes(),
    Resources: gpus(8),
    HostLimits: an_h200_node(),
    Ports: Ports(),
}
HEAD = ray_place(source="ray start --head", path="run.sh", line=4)


def reported_codes(**edits: Any) -> set[str]:
    """Codes of the rules with findings, with these facts replaced."""
    by_name = {fact.__name__: fact for fact in WELL}
    facts = {**WELL, **{by_name[name]: fact for name, fact in edits.items()}}
    results = judge(
        known().checks,
        Collection((), facts),
        Selection(select=RULES, costs=frozenset({"instant"}) | DEEP),
        today=date(2026, 11, 21),
    )
    assert [
        (result.code, result.reason, result.trace) for result in results if result.status == "error"
    ] == []
    return {result.code for result in results if result.findings and result.code in RULES}


def test_healthy_ray_has_no_findings() -> None:
    assert reported_codes() == set()


def test_machine_without_ray() -> None:
    nothing = Absent("no Ray responds at any address known here")
    assert reported_codes(RayAddresses=RayAddresses(folder="/tmp/ray"), RayClusters=nothing) == set()


@pytest.mark.parametrize(
    ("codes", "edits"),
    [
        ("RAY101", {"RayAddresses": RayAddresses((ray_place(**DEAD), TAKEN), (MINE,)), "RayClusters": RayClusters((a_cluster(),), ADDRESS[:-1])}),
        ("RAY102", {"RayAddresses": RayAddresses((GONE,), file=AddressFile("/tmp/ray/x", "me")), "RayClusters": Absent("none answers")}),
        ("RAY102", {"RayAddresses": RayAddresses((GONE,)), "RayClusters": Absent("none answers"), "Configuration": configured("ray_kwargs.ray_init.num_cpus=64")[0]}),
        ("RAY103", {"Configuration": configured("ray_kwargs.ray_init.num_cpus=64")[0]}),
        ("RAY104", {"RayClusters": joins(a_cluster(ray="2.9.3"))}),
        ("RAY105", {"RayClusters": joins(a_cluster(python="3.11.2"))}),
        ("RAY106", {"RayAddresses": RayAddresses((ray_place(),), (MINE,)), "RayClusters": joins(a_cluster(token=True)), "RayToken": RayToken(path="/t", by_itself=True)}),
        ("RAY106", {"RayClusters": joins(a_cluster(token=True, refused="InvalidAuthToken", silent=True, nodes=())), "RayToken": RayToken()}),
        ("RAY107", {"RayAddresses": RayAddresses((TAKEN,), (MINE, replace(MINE, address="10.0.0.5:7", session="s2", raylets=(99,))))}),
        ("RAY108", {"RayAddresses": RayAddresses((ray_place(),))}),
        ("RAY109", {"RayAddresses": RayAddresses((ray_place("auto"),)), "RayClusters": Absent("none answers")}),
        ("RAY109", {"RayAddresses": RayAddresses((ray_place("local"),)), "RayClusters": Absent("none answers"), "JobNodes": TWO}),
        ("RAY110", {"RayAddresses": RayAddresses((HEAD,), (MINE,)), "RayClusters": RayClusters((a_cluster(),)), "Ports": Ports((Listener(6379, "10.0.0.5", 70, "gcs_server", mine=True),), (RequestedPorts(6379, 6379, "ray start --port"),))}),
        ("RAY111", {"RayClusters": joins(a_cluster(a_node(resources={"CPU": 64.0})))}),
        ("RAY111", {"RayClusters": joins(a_cluster(a_node(free={"CPU": 4.0})))}),
        ("RAY112", {"RayClusters": joins(a_cluster(a_node(resources={"CPU": 8.0, "GPU": 8.0})))}),
        ("RAY113", {"RayClusters": joins(a_cluster(a_node(), a_node("n2", address="10.0.0.6", alive=False, end="UNEXPECTED_TERMINATION")))}),
        ("RAY114", {"RayAddresses": RayAddresses((TAKEN,), (replace(MINE, mine=False, user="eve"),))}),
        ("RAY118", {"RayClusters": joins(a_cluster(refused="no answer", silent=True, nodes=()))}),
        ("RAY119", {"RayAddresses": RayAddresses(file=AddressFile("/tmp/ray/x", "eve", mine=False, readable=False)), "RayClusters": Absent("none answers")}),
    ],
)  # fmt: skip
def test_one_cause_is_reported_once(codes: str, edits: dict[str, Any]) -> None:
    assert reported_codes(**edits) == set(codes.split())
