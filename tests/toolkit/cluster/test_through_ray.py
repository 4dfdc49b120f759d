"""Interpretation of the driver's output: names, dead nodes, missing responses, and a driver that ends."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.cluster import through_ray
from verl_doctor.toolkit.cluster.node_parcel import Parcel
from verl_doctor.toolkit.cluster.node_program import packed
from verl_doctor.toolkit.cluster.node_request import CouldNotQuery
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.through_ray import RayDriver, node_responses
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

PARCEL = Parcel(b"content", {"modules": [], "facts": []})
FACTS = json.dumps({"facts": {"Gpus": packed(Unknown("no GPU"))}})


def row(node: str, address: str, host: str = "", *, port: int = 1, died: str = "") -> dict[str, Any]:
    return {"node": node, "address": address, "port": port, "host": host, "alive": not died, "died": died}


def responses_of(
    folder: Path, *lines: dict[str, Any], end: str = "exit 0", budget: float = 120
) -> list[NodeResponse]:
    """Responses for a driver that prints these lines and then ends."""
    script = "".join(f"\nprintf '%s%s\\n' \"$3\" {shlex.quote(json.dumps(line))}" for line in lines)
    driver = folder / "python"
    driver.write_text(f"#!/bin/sh\necho noise{script}\n{end}\n")
    driver.chmod(driver.stat().st_mode | stat.S_IXUSR)
    return list(node_responses(Machine(), RayDriver(str(driver), "10.0.0.1:6379"), PARCEL, budget))


def test_responses_and_missing_nodes_are_reported(tmp_path: Path) -> None:
    rows = [row(str(number), f"10.0.0.{number}", f"n{number}") for number in range(1, 5)]
    got = responses_of(
        tmp_path,
        {"job": "02000000"},
        {"nodes": rows},
        {"node": "1", "answer": FACTS, "clock": [0.5, 0.001], "seconds": 1.5},
        {"node": "2", "missing": "Ray declared it dead"},
        {"node": "3", "stage": "hello", "seconds": 9.0},
        {"node": "4", "stage": "", "seconds": 0.0},
        {"done": True},
    )
    assert [(response.node, response.address, response.missing) for response in got] == [
        ("n1", "10.0.0.1", ""),
        ("n2", "10.0.0.2", "Ray declared it dead"),
        ("n3", "10.0.0.3", "it started no worker in time: its raylet is busy, hangs, or cannot be reached"),
        ("n4", "10.0.0.4", "it was not queried: the time was up"),
    ]
    assert json.loads(got[0].facts["Gpus"]) == {"unknown": "no GPU"}
    assert json.loads(got[0].facts["ClockOffset"]) == {"is": {"ahead": 0.5, "within": 0.001}}


def test_node_names_are_unique(tmp_path: Path) -> None:
    rows = [
        row("a", "10.0.0.1", "head"),
        row("b", "10.0.0.2", "box"),
        row("c", "10.0.0.3", "box"),
        row("d", "10.0.0.4", "same", port=7),
        row("e", "10.0.0.4", "same", port=8),
    ]
    answers = [{"node": row["node"], "answer": FACTS} for row in rows]
    got = responses_of(tmp_path, {"job": "1"}, {"nodes": rows}, *answers, {"done": True})
    assert [response.node for response in got] == ["head", "10.0.0.2", "10.0.0.3", "10.0.0.4:7", "10.0.0.4:8"]


def test_dead_actors_count_until_they_are_replaced(tmp_path: Path) -> None:
    rows = [
        row("a", "10.0.0.1", "n1"),
        row("b", "10.0.0.1", "n1", died="Ray declared it dead: it was restarted"),
        row("c", "10.0.0.2", "n2", died="Ray declared it dead: no heartbeat"),
        row("d", "10.0.0.2", "n2", died="Ray declared it dead: again no heartbeat"),
    ]
    got = responses_of(
        tmp_path, {"job": "1"}, {"nodes": rows}, {"node": "a", "answer": FACTS}, {"done": True}
    )
    assert [(response.node, response.missing) for response in got] == [
        ("n2", "Ray declared it dead: again no heartbeat"),
        ("n1", ""),
    ]


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("echo 'GCS went away' >&2; exit 1", "the driver lost the cluster: GCS went away"),
        ("kill -9 $$", "the driver lost the cluster: it printed nothing"),
    ],
)
def test_early_end_of_the_driver_keeps_received_responses(tmp_path: Path, end: str, why: str) -> None:
    rows = [row("a", "10.0.0.1", "n1"), row("b", "10.0.0.2", "n2")]
    got = responses_of(tmp_path, {"job": "1"}, {"nodes": rows}, {"node": "a", "answer": FACTS}, end=end)
    assert [(response.node, response.missing) for response in got] == [("n1", ""), ("n2", why)]


def test_failed_driver_reports_its_error(tmp_path: Path) -> None:
    got = responses_of(
        tmp_path, {"job": "1"}, {"nodes": [row("a", "10.0.0.1", "n1")]}, {"broke": "KeyError: 'x'"}
    )
    assert [response.missing for response in got] == ["the driver broke: KeyError: 'x'"]


@pytest.mark.slow
def test_hanging_driver_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(through_ray, "_LEAVING", 0.1)
    got = responses_of(
        tmp_path, {"job": "1"}, {"nodes": [row("a", "10.0.0.1", "n1")]}, end="exec sleep 60", budget=-2.5
    )
    assert [response.missing for response in got] == ["the time was up"]


def test_no_process_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(CouldNotQuery, match="Version mismatch"):
        responses_of(tmp_path, {"refused": "Version mismatch: 2.9 and 2.60"})
    with pytest.raises(CouldNotQuery, match="no such module"):
        responses_of(tmp_path, end="echo 'no such module' >&2; exit 1")
