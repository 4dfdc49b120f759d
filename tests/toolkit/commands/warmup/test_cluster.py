"""Warming many nodes: scheduling, results, and unresponsive nodes."""

from __future__ import annotations

import os
import random
import stat
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from support.evicted import cached_share, written
from support.running import Doctor
from support.trying import unless_disturbed

from verl_doctor.toolkit.cluster import node_warm
from verl_doctor.toolkit.cluster.node_parcel import Parcel, packed
from verl_doctor.toolkit.cluster.node_request import Sharing
from verl_doctor.toolkit.cluster.through_ssh import host_responses
from verl_doctor.toolkit.commands.warmup import cluster
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes.cluster import NodeQuery, startable
from verl_doctor.toolkit.warm.request import WarmRequest

NFS, LUSTRE = "nfs4 server:/models", "lustre mgs@tcp:/data"

# ssh to a host of this machine; it writes down when it came and went. `hangs` never answers.
SSH = """#!/bin/sh
[ "$5" = hangs ] && exec sleep 600
echo "+ $5" >> "$VISITS"
sh -c "$6"
echo "- $5" >> "$VISITS"
"""


def turn(
    waiting: list[NodeQuery], running: list[NodeQuery], sharing: int = 2, at_once: int = 256
) -> list[str]:
    return [visit.node for visit in startable(waiting, running, at_once=at_once, sharing=sharing)]


def visits(count: int, *shares: str, first: int = 0) -> list[NodeQuery]:
    return [
        NodeQuery(f"n{number}", f"10.0.{number // 256}.{number % 256}", shares)
        for number in range(first, first + count)
    ]


def test_own_disks_are_read_in_parallel_and_shared_ones_by_few_nodes() -> None:
    assert turn(visits(100), []) == [f"n{number}" for number in range(100)]
    assert turn(visits(100, NFS), []) == ["n0", "n1"]
    assert turn(visits(100, NFS, first=2), visits(1, NFS)) == ["n2"]
    assert turn(visits(100, NFS, first=2), visits(2, NFS)) == []
    assert turn([*visits(3, NFS), *visits(3, LUSTRE, first=3)], []) == ["n0", "n1", "n3", "n4"]


def test_node_that_needs_two_file_systems_waits_for_both_and_blocks_no_other() -> None:
    waiting = [*visits(1, NFS, LUSTRE), *visits(2, LUSTRE, first=1), *visits(1, first=3)]
    assert turn(waiting, visits(2, NFS, first=9)) == ["n1", "n2", "n3"]


def test_raylets_of_one_machine_and_all_nodes_have_limits() -> None:
    one_machine = [NodeQuery(str(number), "10.0.0.1") for number in range(5)]
    assert turn(one_machine, []) == ["0", "1"]
    assert len(turn(visits(300), [])) == 256
    assert turn(visits(9), visits(3, first=9), at_once=4) == ["n0"]


@pytest.mark.slow
def test_all_of_a_thousand_nodes_get_their_turn() -> None:
    """Simulation: finished nodes make room, concurrent reads stay within limits, and no node is forgotten."""
    order = random.Random(7)
    waiting = [*visits(900, NFS), *visits(60, LUSTRE, first=900), *visits(40, first=960)]
    order.shuffle(waiting)
    running: list[NodeQuery] = []
    done = 0
    while waiting or running:
        for visit in startable(waiting, running, at_once=256, sharing=8):
            waiting.remove(visit)
            running.append(visit)
        assert running
        assert len(running) <= 256
        assert all(sum(share in visit.shares for visit in running) <= 8 for share in (NFS, LUSTRE))
        running.pop(order.randrange(len(running)))
        done += 1
    assert done == 1000


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which visits are written down."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH.replace("$VISITS", str(tmp_path / "visits")))
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path / "visits"


@pytest.mark.slow
def test_hosts_with_a_shared_file_system_take_turns(ssh: Path) -> None:
    hosts = [f"n{number}" for number in range(4)]
    nothing = Parcel(packed([]), {"modules": [], "facts": [], "given": {}})
    sharing = Sharing(dict.fromkeys(hosts[:3], (NFS,)), most=1)
    visited = {
        response.node
        for response in host_responses(Machine(), hosts, "ssh", "/bin/true", nothing, 120, sharing=sharing)
    }
    assert visited == set(hosts)
    of_sharers = [line for line in ssh.read_text().splitlines() if not line.endswith("n3")]
    assert [line[0] for line in of_sharers] == ["+", "-"] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("ssh")
@unless_disturbed
def test_every_node_reads_missing_data_and_the_silent_one_is_named(here: Doctor, disk: Path) -> None:
    shards = [written(disk / f"model-{number}.safetensors", 1 << 20) for number in range(3)]
    words = ("--model", disk, "--nodes", "n1,n2", "--python", sys.executable)
    cold = here("warmup", *words, "--dry-run", cwd=disk)
    assert cold.returncode == 1
    assert cold.stdout.startswith("COLD  n[1-2]: 0 B of 3.0 MiB in 3 files are resident"), cold.stderr
    assert [cached_share(shard) for shard in shards] == [0, 0, 0]
    done = here("warmup", *words, cwd=disk)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARM" in done.stdout
    assert [cached_share(shard) for shard in shards] == [1, 1, 1]
    words = ("--model", disk, "--nodes", "n1,hangs", "--python", sys.executable)
    begun = time.monotonic()
    done = here("warmup", *words, "--budget", "20", cwd=disk)
    assert done.returncode == 3, done.stdout
    assert "NO ANSWER  hangs: it did not respond in time" in done.stdout
    assert "WARM  n1: 3.0 MiB" in done.stdout
    assert time.monotonic() - begun < 300


@pytest.mark.slow
@pytest.mark.usefixtures("ssh")
@unless_disturbed
def test_short_budget_leaves_time_for_reading(
    here: Doctor, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_SUMMING_UP", 70.0)
    shard = written(disk / "model.safetensors", 1 << 20)
    words = ("--model", disk, "--nodes", "n1", "--python", sys.executable)
    done = here("warmup", *words, "--budget", "60", cwd=disk)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cached_share(shard) == 1


@unless_disturbed
def test_node_without_missing_data_reports_no_timeout(disk: Path) -> None:
    shard = written(disk / "model.safetensors", 1 << 20)
    request = asdict(WarmRequest(paths=(str(shard),)))
    assert node_warm.warmed(Machine(), request, -1.0)["ended"] == "the time limit was reached"
    shard.read_bytes()
    found = node_warm.warmed(Machine(), request, -1.0)
    assert (found["ended"], found["resident"]) == ("", 1 << 20)
