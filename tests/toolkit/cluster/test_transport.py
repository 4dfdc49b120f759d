"""How nodes are reached: how long each may take of the time that all of them have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verl_doctor.toolkit.cluster import transport
from verl_doctor.toolkit.cluster.node_parcel import Parcel
from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.through_ray import RayDriver
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.target import Options


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Seconds allowed for all nodes and for each."""
    found: list[tuple[float, float]] = []

    def fake_query(
        machine: object,
        driver: object,
        parcel: object,
        budget: float,
        *_: object,
        longest: float,
        **__: object,
    ) -> Iterator[NodeResponse]:
        found.append((budget, longest))
        return iter(())

    monkeypatch.setattr(transport, "node_responses", fake_query)
    return found


@pytest.mark.parametrize(
    ("budget", "longest", "seconds"),
    [
        (10.0, None, (10.0, 20.0)),  # no more than the user gives
        (60.0, None, (60.0, 20.0)),
        (300.0, None, (300.0, 100.0)),  # a node with a slow disk needs it, and nothing else could give it
        (10.0, 300.0, (300.0, 300.0)),  # a repair
    ],
)
def test_time_limit_for_nodes(
    limits: list[tuple[float, float]], budget: float, longest: float | None, seconds: tuple[float, float]
) -> None:
    cluster = RayCluster("10.0.0.1:6379")
    way = transport._through_ray(
        RequestedNodes(budget=budget), open_session(Options()), cluster, RayDriver("python", cluster.address)
    )
    assert list(way.query(Parcel(b"", {}), longest=longest)) == []
    assert limits == [seconds]
