"""Interpretation of GCS responses, and how the reader is started. A miniature represents Ray."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.environments import interpreter

from verl_doctor.toolkit.collectors.ray.addresses import UNDETERMINED, LocalRay, Place, RayAddresses, Source
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters, ray_clusters
from verl_doctor.toolkit.collectors.ray.token import RayToken
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output

ANSWER = {
    "cluster": "ab12",
    "metadata": {"ray_version": "2.60.0", "python_version": "3.11.7", "ray_init_cluster": False},
    "session": "session_2026-11-21_10-00-00_1",
    "nodes": [{"node": "n1", "address": "10.0.0.1", "resources": {"CPU": 4.0}, "alive": True}],
    "jobs": [{"job": "01000000", "entrypoint": "python train.py --wandb_key=0123456789", "namespace": "one"}],
    "actors": [{"actor": "a1", "state": "ALIVE", "namespace": "two", "needs": {"CPU": 1.0}}],
    "groups": [{"group": "g1", "state": "PENDING", "bundles": [{"CPU": 8.0}], "nodes": [""], "later": "field"}],
    "undetermined": [],
}  # fmt: skip
NOT_LET_IN = {"refused": "AuthenticationError: RPC error: InvalidAuthToken: missing", "undetermined": []}


class Child:
    """A child with given output that records its requests."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, argv: Sequence[str], environ: Mapping[str, str], timeout: float) -> Output:
        del timeout
        token, question = argv[3], json.loads(argv[4])
        order = (
            question["address"],
            environ.get("RAY_AUTH_MODE", ""),
            environ.get("RAY_AUTH_TOKEN_PATH", ""),
        )
        self.asked.append(order)
        return Output(0, f"noise\n{token}{json.dumps(self.answers.pop(0))}\n", "", 0.1)


def place(address: str, source: Source = "RAY_ADDRESS", **others: Any) -> Place:
    host, _, port = address.rpartition(":")
    return Place(source, source, address, host, int(port), **{"reply": "connected", **others})


def read(
    child: Child, addresses: RayAddresses, token: RayToken | None = None, answer: Output | None = None
) -> RayClusters | Unknown:
    runner = child if answer is None else lambda *_: answer
    machine = Machine(environ={"HOME": "/home/me"}, runner=runner)
    python = replace(interpreter(), executable=sys.executable)
    found = ray_clusters.collect(addresses, token or RayToken(), python, machine)
    assert isinstance(found, (RayClusters, Unknown))
    return found


def test_cluster_fact_contains_no_secrets() -> None:
    found = read(Child(ANSWER), RayAddresses((place("10.0.0.1:6379"),)))
    assert isinstance(found, RayClusters)
    cluster = found.chosen
    assert cluster is not None
    assert (cluster.ray, cluster.python, cluster.token, cluster.refused) == ("2.60.0", "3.11.7", False, "")
    assert cluster.nodes[0].resources == {"CPU": 4.0}
    assert cluster.groups[0].bundles == ({"CPU": 8.0},)
    assert cluster.namespaces == ("one", "two")
    assert "0123456789" not in repr(found)


@pytest.mark.parametrize(
    ("source", "changes", "choice", "concerned"),
    [
        ("RAY_ADDRESS", {}, "named", 1),
        ("--ray-address", {}, "named", 1),
        ("address file", {}, "found", 2),
        ("ray.init", {"text": "local", "host": "", "port": 0, "reply": ""}, "new", 0),
        ("ray start --head", {}, "new", 0),
        ("ray start --head", {"text": UNDETERMINED}, "new", 0),
        ("RAY_ADDRESS", {"text": UNDETERMINED}, "found", 2),
    ],
)
def test_processes_of_another_ray_are_ignored(
    source: Source, changes: dict[str, Any], choice: str, concerned: int
) -> None:
    first, second = place("10.0.0.1:6379", source), place("10.0.0.2:6379", "raylet")
    child = Child(*({**ANSWER, "cluster": name} for name in ("ab12", "cd34")))
    found = read(child, RayAddresses((replace(first, **changes), second, replace(first, source="raylet"))))
    assert isinstance(found, RayClusters)
    assert (found.choice, len(found.concerned)) == (choice, concerned)


def test_token_is_passed_by_path_only_to_a_cluster_that_requires_one() -> None:
    child = Child(NOT_LET_IN, ANSWER)
    token = RayToken(path="/home/me/.ray/auth_token")
    found = read(child, RayAddresses((place("10.0.0.1:6379"),)), token)
    assert isinstance(found, RayClusters)
    assert (found.clusters[0].token, found.clusters[0].ray) == (True, "2.60.0")
    assert child.asked == [
        ("10.0.0.1:6379", "disabled", ""),
        ("10.0.0.1:6379", "token", "/home/me/.ray/auth_token"),
    ]


def test_cluster_is_not_queried_again_without_a_token() -> None:
    child = Child(NOT_LET_IN)
    found = read(child, RayAddresses((place("10.0.0.1:6379"),)))
    assert isinstance(found, RayClusters)
    assert (found.clusters[0].token, len(child.asked)) == (True, 1)
    assert "InvalidAuthToken" in found.clusters[0].refused
    assert not found.clusters[0].has_read("actors")


def test_addresses_of_the_same_cluster_are_merged() -> None:
    child = Child(ANSWER, ANSWER)
    addresses = RayAddresses((place("head:6379"), place("10.0.0.1:6379", "address file")))
    found = read(child, addresses)
    assert isinstance(found, RayClusters)
    assert len(found.clusters) == 1
    assert found.at("10.0.0.1:6379") is found.at("head:6379") is found.chosen


def test_unqueried_hosts() -> None:
    """A dead port, a Ray service that is not a GCS, and a Ray of another user."""
    addresses = RayAddresses(
        (
            place("10.0.0.1:1", reply="refused"),
            Place("RAY_ADDRESS", "RAY_ADDRESS", "ray://10.0.0.1:2", "10.0.0.1", 2, "connected"),
            place("10.0.0.1:3", "raylet"),
        ),
        (LocalRay("10.0.0.1:3", mine=False),),
    )
    assert isinstance(read(Child(), addresses), Absent)


def test_missing_information_is_reported() -> None:
    partial = {**ANSWER, "actors": None, "undetermined": ["actors: AttributeError: get_actor_table"]}
    found = read(Child(partial), RayAddresses((place("10.0.0.1:6379"),)))
    assert isinstance(found, RayClusters)
    assert (found.clusters[0].has_read("nodes"), found.clusters[0].has_read("actors")) == (True, False)


def test_server_that_is_not_a_gcs_is_refused() -> None:
    late: dict[str, Any] = {
        "undetermined": ["the GCS did not respond to all requests within 4 s"],
        "asked": True,
    }
    found = read(Child(late), RayAddresses((place("10.0.0.1:6379"),)))
    assert isinstance(found, RayClusters)
    assert found.clusters[0].refused == "the GCS did not respond to all requests within 4 s"
    assert found.clusters[0].silent


def test_failing_reader_does_not_make_the_gcs_silent() -> None:
    found = read(Child(), RayAddresses((place("10.0.0.1:6379"),)), answer=Output(None, "", "", 20.0))
    assert isinstance(found, RayClusters)
    assert (found.clusters[0].refused, found.clusters[0].silent) == ("it did not end within 20 s", False)
