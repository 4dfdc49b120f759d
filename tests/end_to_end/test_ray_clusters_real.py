"""Real clusters: reading one without joining it, with several Ray releases, and findings about those that cannot be joined."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.environments import interpreter
from support.ray import head
from support.running import doctor
from support.trying import unless_disturbed

from verl_doctor.toolkit.collectors.ray.addresses import Place, RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters, ray_clusters
from verl_doctor.toolkit.collectors.ray.state import RayActor
from verl_doctor.toolkit.collectors.ray.token import RayToken
from verl_doctor.toolkit.machine import Machine

pytestmark = [pytest.mark.real, pytest.mark.slow]

OLDER = ("2.49.0", "2.55.0")
WORK = """
import sys, time
import ray
from ray.util.placement_group import placement_group
ray.init(address=sys.argv[1], namespace="mine", log_to_driver=False)
@ray.remote(num_cpus=0)
class Worker:
    def ready(self):
        return True
named = Worker.options(name="oneWorkerDict_0:0", num_cpus=1).remote()
left = Worker.options(name="left", lifetime="detached").remote()
placed = placement_group([{"CPU": 1, "GPU": 1}], name="placed", lifetime="detached")
ray.get([named.ready.remote(), left.ready.remote(), placed.ready()])
inside = Worker.options(name="inside", placement_group=placed, num_gpus=1).remote()
ray.get(inside.ready.remote())
queue = placement_group([{"CPU": 1}] * 8, name="queue", strategy="SPREAD")
pending = Worker.options(name="wide", num_cpus=64).remote()
print(ray.get_runtime_context().get_job_id(), flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return head.environment() / "bin" / "python"


@dataclass(frozen=True)
class Driver:
    """A driver that holds actors and groups, and the number of its job."""

    process: subprocess.Popen[str]
    job: str


@contextlib.contextmanager
def driver(at: head.Head, seconds: float = 3600) -> Iterator[Driver]:
    environ = {
        **os.environ,
        "RAY_TMPDIR": str(at.folder),
        "HOME": str(at.folder),
        "RAY_AUTH_MODE": "disabled",
    }
    with subprocess.Popen(
        [at.python, "-c", WORK, at.address, str(seconds)], env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Driver(process, process.stdout.readline().strip())
        finally:
            process.kill()


@pytest.fixture(scope="module")
def busy(python: Path) -> Iterator[tuple[head.Head, Driver]]:
    with head.head(python, "", "--num-cpus=2", "--num-gpus=1") as at, driver(at) as one:
        yield at, one


def read(address: str, python: Path, token: RayToken | None = None) -> RayCluster:
    """Cluster fact for this address, read by a child of this interpreter."""
    host, _, port = address.rpartition(":")
    place = Place("--ray-address", "--ray-address", address, host, int(port), "connected")
    target = replace(interpreter(), executable=str(python))
    found = ray_clusters.collect(RayAddresses((place,)), token or RayToken(), target, Machine())
    assert isinstance(found, RayClusters)
    assert found.chosen is not None
    return found.chosen


def messages_of(
    at: head.Head, cwd: Path, *options: str, python: Path | None = None, **environ: str
) -> dict[str, str]:
    """The messages and remedies of the rules about Ray, by code."""
    done = doctor(
        "check", "--python", python or at.python, "--select", "RAY", "--format", "json", *options,
        cwd=cwd, **{"RAY_TMPDIR": str(at.folder), "HOME": str(at.folder), **environ},
    )  # fmt: skip
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return {
        result["code"]: " | ".join(
            f"{finding['message']} {finding['remedy']}" for finding in result["findings"]
        )
        for result in results
        if result["findings"]
    }


def actor(cluster: RayCluster, name: str) -> RayActor:
    return next(actor for actor in cluster.actors if actor.name == name)


@unless_disturbed
def test_cluster_content_is_read(busy: tuple[head.Head, Driver]) -> None:
    at, one = busy
    found = read(at.address, at.python)
    assert (found.refused, found.undetermined, found.token, found.by_driver) == ("", (), False, False)
    assert (found.ray, found.python) == (head.VERSION, ".".join(map(str, sys.version_info[:3])))
    assert (at.folder / "ray" / found.session).is_dir()
    (node,) = found.nodes
    assert (node.alive, node.head, node.resources["GPU"], node.free.get("GPU", 0.0)) == (True, True, 1.0, 0.0)
    job = next(job for job in found.jobs if job.job == one.job)  # other tests have had theirs
    assert (job.job, job.pid, job.namespace, job.finished) == (one.job, one.process.pid, "mine", False)
    named, left, inside, wide = (
        actor(found, name) for name in ("oneWorkerDict_0:0", "left", "inside", "wide")
    )
    assert (named.state, named.class_name, named.namespace, named.job) == ("ALIVE", "Worker", "mine", one.job)
    assert (named.node, named.needs, named.detached) == (node.node, {"CPU": 1.0}, False)
    assert psutil.Process(named.pid).name().startswith("ray::")
    began = psutil.Process(one.process.pid).create_time()
    assert began - 1 < named.started < time.time() + 1
    assert left.detached
    assert (wide.state, wide.pid, wide.node) == ("PENDING_CREATION", 0, "")
    placed, queue = sorted(found.groups, key=lambda group: group.name)
    assert (placed.state, placed.bundles, placed.nodes) == (
        "CREATED",
        ({"CPU": 1.0, "GPU": 1.0},),
        (node.node,),
    )
    assert (queue.state, queue.strategy, len(queue.bundles), set(queue.nodes)) == (
        "PENDING",
        "SPREAD",
        8,
        {""},
    )
    assert inside.group == placed.group
    assert found.namespaces == ("mine",)


@pytest.mark.thorough
@pytest.mark.parametrize("version", OLDER)
@unless_disturbed
def test_older_ray_reads_the_same(busy: tuple[head.Head, Driver], version: str) -> None:
    at, _ = busy
    now, then = (
        read(at.address, at.python),
        read(at.address, head.environment(version) / "bin" / "python"),
    )
    assert then.refused == ""
    assert then.undetermined == ()
    assert steady(then) == steady(now)
    assert [node.node for node in then.nodes] == [node.node for node in now.nodes]


def steady(cluster: RayCluster) -> RayCluster:
    """The fact without values that change between two readings: free resources, and the state of a group that is retried."""
    groups = tuple(replace(group, state="", waits_for="") for group in cluster.groups)
    return replace(cluster, nodes=(), groups=groups)


def test_reading_registers_no_job(busy: tuple[head.Head, Driver]) -> None:
    at, _ = busy
    before = [job.job for job in read(at.address, at.python).jobs]  # other tests have had theirs
    for _ in range(3):
        assert [job.job for job in read(at.address, at.python).jobs] == before
    environ = {
        **os.environ,
        "RAY_TMPDIR": str(at.folder),
        "HOME": str(at.folder),
        "RAY_AUTH_MODE": "disabled",
    }
    script = f"import ray; ray.init({at.address!r}); print(ray.get_runtime_context().get_job_id())"
    next_job = subprocess.run(
        [at.python, "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    assert int(next_job.stdout.strip()[:2], 16) == max(int(job[:2], 16) for job in before) + 1


def test_unsatisfiable_requests_are_reported(busy: tuple[head.Head, Driver], tmp_path: Path) -> None:
    at, one = busy
    found = messages_of(at, tmp_path, RAY_ADDRESS=at.address)
    assert f"placement group queue of job {one.job} can never be placed" in found["RAY115"]
    assert "actor wide (Worker) requests 64 CPU, which no node has" in found["RAY116"]
    assert not {code for code in found if code < "RAY115"}


def test_other_ray_release_is_reported(busy: tuple[head.Head, Driver], tmp_path: Path) -> None:
    at, _ = busy
    found = messages_of(
        at, tmp_path, python=head.environment(OLDER[0]) / "bin" / "python", RAY_ADDRESS=at.address
    )
    assert f"runs Ray {head.VERSION}, but this environment has {OLDER[0]}" in found["RAY104"]


def test_second_ray_on_the_machine(busy: tuple[head.Head, Driver], tmp_path: Path) -> None:
    at, _ = busy
    with head.head(at.python, "", "--num-cpus=1") as other:
        found = messages_of(at, tmp_path)
        assert f"a job joins the one at {at.address}" in found["RAY107"]
        assert "RAY107" not in messages_of(at, tmp_path, RAY_ADDRESS=other.address)


def test_port_of_another_ray(busy: tuple[head.Head, Driver], tmp_path: Path) -> None:
    """The script of another container on the host's network; Ray itself confirms the finding."""
    at, _ = busy
    port = at.address.rpartition(":")[2]
    (tmp_path / "run.sh").write_text(f"ray start --head --port={port}\npython -m verl.trainer.main_ppo\n")
    found = messages_of(at, tmp_path, "run.sh", RAY_TMPDIR=str(tmp_path), HOME=str(tmp_path))
    assert "does not match persisted value" in found["RAY110"]
    command = [at.python.parent / "ray", "start", "--head", f"--port={port}", "--include-dashboard=false"]
    environ = {
        **os.environ,
        "RAY_TMPDIR": str(at.folder / "x"),
        "HOME": str(at.folder),
        "RAY_AUTH_MODE": "disabled",
    }
    ray = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert "does not match persisted value" in ray.stderr + ray.stdout


def test_killed_node(python: Path, tmp_path: Path) -> None:
    with head.head(python, "", "--num-cpus=1") as at:
        environ = {
            **os.environ,
            "RAY_TMPDIR": str(at.folder),
            "HOME": str(at.folder),
            "RAY_AUTH_MODE": "disabled",
        }
        start = [
            python.parent / "ray",
            "start",
            f"--address={at.address}",
            "--num-gpus=4",
            "--disable-usage-stats",
            *head.ALONE,
        ]
        done = subprocess.run(start, env=environ, check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(read(at.address, python).alive) == 2
        (second,) = [raylet.pid for raylet in head.raylets(at.folder) if raylet.pid != at.raylet]
        os.kill(second, signal.SIGKILL)
        for _ in range(60):
            found = read(at.address, python)
            if len(found.alive) == 1:
                break
            time.sleep(2)  # each reading imports Ray
        (dead,) = [node for node in found.nodes if not node.alive]
        assert (dead.resources["GPU"], dead.end, dead.ended > dead.started) == (
            4.0,
            "UNEXPECTED_TERMINATION",
            True,
        )
        assert dead.died


def test_token_is_hidden(python: Path, tmp_path: Path) -> None:
    token = "0123456789abcdef0123456789abcdef"
    before = f"unset RAY_AUTH_MODE; mkdir $HOME/.ray; printf {token} > $HOME/.ray/auth_token;"
    with head.head(python, before, "--num-cpus=1") as at:
        locked = read(at.address, python)
        assert (locked.token, locked.nodes) == (True, ())
        assert "InvalidAuthToken" in locked.refused
        opened = read(at.address, python, RayToken(path=str(at.folder / ".ray" / "auth_token")))
        assert (opened.token, opened.ray, len(opened.nodes)) == (True, head.VERSION, 1)
        assert token not in repr(opened)
        assert (
            "none is sent because RAY_AUTH_MODE is not set"
            in messages_of(at, tmp_path, RAY_ADDRESS=at.address)["RAY106"]
        )
        assert "RAY106" not in messages_of(at, tmp_path, RAY_ADDRESS=at.address, RAY_AUTH_MODE="token")
        assert "RAY106" not in messages_of(
            at, tmp_path
        )  # Ray 2.60 shows it by itself to the cluster that it finds


def test_address_file_that_outlives_its_ray(python: Path, tmp_path: Path) -> None:
    with head.head(python, "", "--num-cpus=1") as at:
        head.kill_all((), at.folder)
        found = messages_of(at, tmp_path)
        assert (
            f"names {at.address}, but no Ray answers there: ray.init() would wait for it forever"
            in found["RAY102"]
        )
        environ = {
            **os.environ,
            "RAY_TMPDIR": str(at.folder),
            "HOME": str(at.folder),
            "RAY_AUTH_MODE": "disabled",
        }
        waiting = subprocess.Popen(
            [python, "-c", "import ray; ray.init()"], env=environ, stderr=subprocess.DEVNULL
        )
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(15)
        waiting.kill()
        waiting.wait()
        assert "nothing listens on" in messages_of(at, tmp_path, RAY_ADDRESS=at.address)["RAY101"]
        assert "RAY101" not in messages_of(at, tmp_path, RAY_ADDRESS="local")
