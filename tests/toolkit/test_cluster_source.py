"""How nodes are reached: how long each may take of the time that all of them have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from verl_doctor.toolkit import cluster_source
from verl_doctor.toolkit.cluster_nodes import RayDriver
from verl_doctor.toolkit.fact_ray_clusters import RayCluster
from verl_doctor.toolkit.node_answer import NodeAnswer
from verl_doctor.toolkit.node_parcel import Parcel
from verl_doctor.toolkit.node_request import AskedNodes
from verl_doctor.toolkit.session import open_session
from verl_doctor.toolkit.target import Options


@pytest.mark.parametrize(("budget", "each"), [(10.0, 20.0), (60.0, 20.0), (300.0, 100.0)])
def test_who_gives_all_nodes_more_time_gives_each_one_more(
    monkeypatch: pytest.MonkeyPatch, budget: float, each: float
) -> None:
    """A node with a slow disk needs it, and nothing but --budget could give it."""
    told: list[Any] = []

    def asked(*_: object, longest: float, **__: object) -> Iterator[NodeAnswer]:
        told.append(longest)
        return iter(())

    monkeypatch.setattr(cluster_source, "node_answers", asked)
    cluster = RayCluster("10.0.0.1:6379")
    way = cluster_source._through_ray(
        AskedNodes(budget=budget), open_session(Options()), cluster, RayDriver("python", cluster.address)
    )
    assert list(way.ask(Parcel(b"", {}))) == []
    assert told == [each]
