"""The parcel for a node is self-contained: it runs in a bare Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.toolkit.cluster import node_program, node_reader
from verl_doctor.toolkit.cluster.node_parcel import (
    Parcel,
    node_collectors,
    parcel_for,
    place_parcel,
    repair_parcel,
)
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.host.clock import Clock
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.model.job_files import job_files
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.packages.tree_manifest import TreeManifest
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.state import RayNode
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.facts import Broken, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import node
from verl_doctor.toolkit.system.sites import Site
from verl_doctor.toolkit.target import Options


@pytest.fixture(scope="module")
def parcel() -> Parcel:
    session = open_session(Options(python=Path(sys.executable)))
    return parcel_for(session, session.look())


def test_queried_facts_describe_a_node() -> None:
    queried = {collector.fact for collector in node_collectors(registry.load())}
    assert {Clock, Network, Packages} <= queried
    assert not queried & {VllmUses, RayClusters, TreeManifest}  # whole source trees, and the cluster's store


@pytest.mark.slow
def test_probe_runs_without_any_installed_package(parcel: Parcel, tmp_path: Path) -> None:
    """An interpreter without site-packages: facts that need psutil are unknown, and nothing is broken."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    text = Path(node.__file__).read_text("utf-8")
    with subprocess.Popen(
        [str(bare / "bin" / "python"), "-I", "-S", "-c", text, "TOKEN "],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(parcel.order(30, detached=False))
        process.stdin.flush()
        output = process.stdout.read().decode()
    facts, missing = node_reader.read(output.rpartition("TOKEN ")[2])
    assert missing == ""
    assert set(facts) == set(parcel.request["facts"])
    entries = {name: json.loads(text) for name, text in facts.items()}
    assert entries["Interpreter"]["is"]["executable"] == str(bare / "bin" / "python")
    assert entries["Network"] == {"unknown": "No module named 'psutil' on that node"}
    assert [name for name, entry in entries.items() if "broken" in entry] == []


@pytest.mark.slow
def test_stopped_probe_leaves_no_temporary_folder(parcel: Parcel, tmp_path: Path) -> None:
    """While it waits for a program that hangs, which has a private folder."""
    lscpu = tmp_path / "lscpu"
    lscpu.write_text('#!/bin/sh\necho $TMPDIR >"$(dirname "$0")/begun"\nexec sleep 600\n')
    lscpu.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", Path(node.__file__).read_text("utf-8"), "TOKEN "],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    ) as process:
        assert process.stdin is not None
        process.stdin.write(parcel.order(300, detached=False))
        process.stdin.flush()
        while not (tmp_path / "begun").exists() or not (tmp_path / "begun").read_text():
            assert process.poll() is None
            time.sleep(0.02)
        assert (tmp_path / "begun").read_text().startswith(f"{temporary}/")
        process.stdin.close()
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_cluster_paths_are_inspected_on_the_node(tmp_path: Path) -> None:
    session = open_session(Options(python=Path(sys.executable)))
    sites = (Site("model", str(tmp_path)), Site("data", "/path/to/data"))
    named = replace(session, config=replace(session.config, sites=sites, path="verl-doctor.toml"))
    request = parcel_for(named, named.look()).request
    facts = node_program.entries({**request, "facts": ["SitePlaces"]}, Machine(cwd=tmp_path))
    places = json.loads(node_program.unpacked(facts["SitePlaces"]))["is"]["places"]
    assert [(place["name"], place["set"], place["content"] and place["content"]["state"]) for place in places] == [
        ("model", True, "there"), ("data", False, None),
    ]  # fmt: skip


@pytest.mark.slow
def test_repair_parcel_contains_all_rules_fixes_and_data() -> None:
    session = open_session(Options(python=Path(sys.executable)))
    sent = node.unpacked(repair_parcel(session, session.look(), unsafe=False).content)
    top = Path(node.__file__).parent.parent
    wanted = {
        f"verl_doctor/{path.relative_to(top)}"
        for folder in ("checks", "patches")
        for path in (*(top / folder).glob("*.py"), *(top / folder).glob("data/*.json"))
    }
    assert wanted <= set(sent)


def test_equal_entries_share_one_string() -> None:
    one, other = (node_program.packed(Unknown("no GPU")) for _ in range(2))
    assert one == other
    answer = json.dumps({"facts": {"Gpus": one, "Xids": other}})
    facts, missing = node_reader.read(answer)
    assert missing == ""
    assert facts["Gpus"] is facts["Xids"]
    assert json.loads(facts["Gpus"]) == {"unknown": "no GPU"}


@pytest.mark.parametrize(
    "text",
    ['{"facts": {"Gpus": "%%%"}}', '{"facts"', "[]", '{"facts": {"Gpus": "0000"}}', "7", "[" * 100_000],
    ids=range(6),
)
def test_damaged_response_is_reported_as_truncated(text: str) -> None:
    assert node_reader.read(text) == ({}, "its response is truncated or damaged")


def test_node_reports_why_it_has_no_facts() -> None:
    assert node_reader.read('{"missing": "its disk is full"}') == ({}, "its disk is full")


def test_broken_collector_is_reported_as_broken() -> None:
    assert node_program._plain(Broken("reading X broke: KeyError: 3")) == Broken(
        "reading X broke: KeyError: 3"
    )
    words = "No module named 'psutil'"
    lacking = Broken(f"reading X broke: ModuleNotFoundError: {words}", "", "ModuleNotFoundError", words)
    assert node_program._plain(lacking) == Unknown("No module named 'psutil' on that node")


def test_request_is_json_followed_by_the_parcel(parcel: Parcel) -> None:
    head, _, content = parcel.order(7.5, detached=True).partition(b"\n")
    order = json.loads(head)
    assert order["parcel"] == len(content)
    assert (order["seconds"], order["detached"]) == (7.5, True)
    files = node.unpacked(content)
    assert "verl_doctor/toolkit/collectors/gpu/gpus.py" in files
    assert "verl_doctor/toolkit/cli/main.py" not in files


@pytest.mark.parametrize(
    ("heads", "sent"), [((RayNode("n1", "10.0.0.5", head=True),), "10.0.0.5:6379"), ((), "127.0.0.1:6379")]
)
def test_named_ray_address_applies_to_all_nodes(heads: tuple[RayNode, ...], sent: str) -> None:
    """The named Ray is passed to nodes; loopback there is a different machine."""
    session = open_session(Options(python=Path(sys.executable), ray_address="127.0.0.1:6379"))
    known = RayClusters((RayCluster("127.0.0.1:6379", nodes=heads),), "127.0.0.1:6379")
    output = place_parcel(session, session.look({RayClusters: known})).request["target"]
    assert node_program._target(output).ray_address == sent


def test_local_model_folder_is_not_taken_for_a_hub_name_on_other_nodes(tmp_path: Path) -> None:
    """`models/qwen` is a local folder; a node that lacks it would take it for a name on the hub and not report it as missing."""
    (tmp_path / "models/qwen").mkdir(parents=True)
    (tmp_path / "run.sh").write_text(
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=models/qwen\n"
    )
    session = open_session(Options(python=Path(sys.executable), launch=(str(tmp_path / "run.sh"),)))
    session = replace(session, machine=replace(session.machine, cwd=tmp_path))
    sent = place_parcel(session, session.look()).request
    (tmp_path / "models/qwen").rmdir()
    target = node_program._target(sent["target"])
    files = job_files.collect(session.machine, target, Unknown(""), Unknown(""), Unknown(""))
    assert [(file.path, file.state) for file in files.files] == [(str(tmp_path / "models/qwen"), "missing")]
    assert target.model_by == "actor_rollout_ref.model.path"
