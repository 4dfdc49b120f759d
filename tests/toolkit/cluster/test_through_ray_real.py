"""The nodes of a real Ray cluster of three raylets: all respond, some die or hang, and nothing is left over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from support.evicted import cached_share, written
from support.ray import head
from support.ray.cluster import Cluster, cluster
from support.running import Doctor
from support.trying import unless_disturbed

from verl_doctor.toolkit.cluster.node_parcel import Parcel, parcel_for, place_parcel
from verl_doctor.toolkit.cluster.node_request import CouldNotQuery
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.through_ray import RayDriver, node_responses
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import cluster as cluster_probe
from verl_doctor.toolkit.target import Options

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=200), pytest.mark.usefixtures("index_at_hand")]

WITHOUT_TOKEN = {"RAY_AUTH_MODE": "disabled"}


@pytest.fixture(scope="module")
def python() -> Path:
    return head.environment() / "bin" / "python"


@pytest.fixture(scope="module")
def nodes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of all nodes, in which the doctor's program works."""
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def made(python: Path, nodes_folder: Path) -> Iterator[Cluster]:
    temporary = {"TMPDIR": str(nodes_folder)}
    second = {"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "6,7", **temporary}
    with cluster(python, 3, each=(temporary, second, temporary)) as running:
        yield running


@pytest.fixture(scope="module")
def parcel(python: Path) -> Parcel:
    session = open_session(Options(python=python))
    return parcel_for(session, session.look())


@pytest.fixture(scope="module")
def small(python: Path) -> Parcel:
    """A request that takes a node little time, for tests of whether it responds."""
    session = open_session(Options(python=python))
    return place_parcel(session, session.look())


def answers(made: Cluster, parcel: Parcel, budget: float = 180) -> Generator[NodeResponse, None, None]:
    """Responses of all nodes, with enough time for a busy machine."""
    driver = RayDriver(str(made.python), made.address, WITHOUT_TOKEN)
    return node_responses(Machine(), driver, parcel, budget, longest=60)


def query(made: Cluster, parcel: Parcel, budget: float = 180) -> list[NodeResponse]:
    return list(answers(made, parcel, budget))


def left(folder: Path) -> list[str]:
    """The doctor's files in a node's folder, and its processes; others may query other nodes at the same time."""
    programs = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(word.startswith(f"{folder}/verl-doctor-") for word in process.cmdline()):
                programs.append(" ".join(process.cmdline())[:100])
    return programs + [path.name for path in folder.glob("verl-doctor-*")]


def settles(condition: object, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_every_node_responds_as_its_workers_see_it(made: Cluster, parcel: Parcel, nodes_folder: Path) -> None:
    address_file = made.folder / "ray" / "ray_current_cluster"
    before = address_file.stat()
    responses = query(made, parcel)
    after = address_file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not (made.folder / ".cache").exists()  # the home of all three
    assert [answer.missing for answer in responses] == ["", "", ""]
    assert len({answer.node for answer in responses}) == 3
    assert all(set(parcel.request["facts"]) <= set(answer.facts) for answer in responses)
    variables = [json.loads(answer.facts["Variables"])["is"]["values"] for answer in responses]
    (second,) = [values for values in variables if "NCCL_DEBUG" in values]
    # Ray hides all GPUs from a task that requests none; the job's workers get theirs from these.
    assert second["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert not any("RAY_JOB_ID" in values or "LD_PRELOAD" in values for values in variables)
    clocks = [json.loads(answer.facts["ClockOffset"])["is"] for answer in responses]
    assert all(abs(clock["ahead"]) <= clock["within"] for clock in clocks)  # they are one clock
    assert settles(lambda: made.jobs() == 0)
    assert settles(lambda: not left(nodes_folder))


def test_saturated_cluster_still_responds(made: Cluster, small: Parcel) -> None:
    busy = (
        "import ray, sys, time\n"
        "ray.init(address=sys.argv[1], log_to_driver=False)\n"
        "@ray.remote(num_cpus=1)\n"
        "def work(): time.sleep(600)\n"
        "tasks = [work.remote() for _ in range(50)]\n"
        "while ray.available_resources().get('CPU', 0): time.sleep(0.2)\n"
        "print('full', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [str(made.python), "-c", busy, made.address],
        env=dict(made.environ),
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "full\n"
            assert [answer.missing for answer in query(made, small)] == ["", "", ""]
        finally:
            driver.kill()


def test_nodes_clean_up_after_the_driver_is_killed(made: Cluster, parcel: Parcel, nodes_folder: Path) -> None:
    """The tasks end with the job. Their children end by themselves."""
    responses: list[str] = []

    def kill_the_driver() -> None:
        assert settles(lambda: any(nodes_folder.glob("verl-doctor-*")))
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if child.cmdline()[1:3] == ["-c", Path(cluster_probe.__file__).read_text("utf-8")]:
                    child.kill()

    killer = threading.Thread(target=kill_the_driver)
    killer.start()
    responses = [answer.missing for answer in query(made, parcel)]
    killer.join()
    assert any(missing.startswith("the driver lost the cluster") for missing in responses)
    assert settles(lambda: not left(nodes_folder))
    assert settles(lambda: made.jobs() == 0)


def test_closing_the_output_stops_the_work(made: Cluster, parcel: Parcel, nodes_folder: Path) -> None:
    """As Ctrl-C does: the generator is closed."""
    hearing = answers(made, parcel)
    assert next(hearing).missing == ""
    hearing.close()
    assert settles(lambda: not left(nodes_folder))
    assert settles(lambda: made.jobs() == 0)


def test_paused_control_store_does_not_block_responses(made: Cluster, small: Parcel) -> None:
    """As when its machine swaps: its clients wait, and the nodes' responses do not need it."""
    (store,) = head.named("gcs_server", made.folder)
    hearing = answers(made, small)
    responses = [next(hearing)]
    store.suspend()
    later = threading.Timer(5, store.resume)
    later.start()
    responses += hearing
    later.join()
    assert [answer.missing for answer in responses] == ["", "", ""]


def test_ctrl_c_ends_the_check_and_its_processes_on_the_nodes(
    made: Cluster, nodes_folder: Path, tmp_path: Path
) -> None:
    check = [sys.executable, "-m", "verl_doctor.toolkit", "check", "--cluster"]
    check += ["--python", str(made.python), "--ray-address", made.address]
    with subprocess.Popen(
        check,
        env={**os.environ, "RAY_TMPDIR": str(made.folder)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert settles(lambda: any(nodes_folder.glob("verl-doctor-*")))
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=300)
    assert process.returncode == 130
    assert output.splitlines()[-1].startswith("verl-doctor: stopped")
    assert settles(lambda: not left(nodes_folder))
    assert settles(lambda: made.jobs() == 0)


def test_check_reports_how_many_agree(made: Cluster, tmp_path: Path, here: Doctor) -> None:
    done = here(
        *("check", "--cluster", "--python", str(made.python), "--ray-address", made.address),
        *("--format", "json", "--budget", "180"),
        *("--select", "HOST130"),  # their limits: alike, as all are this machine
        cwd=tmp_path,
        RAY_TMPDIR=str(made.folder),
    )
    report = json.loads(done.stdout)
    assert report["nodes"]["answered"] == 3
    assert report["nodes"]["missing"] == []
    assert "this starts a job in it, which ends with the check" in done.stderr
    assert done.returncode == 0


@unless_disturbed
def test_warmup_loads_a_model_into_the_page_cache_of_every_node(
    made: Cluster, disk: Path, here: Doctor, nodes_folder: Path
) -> None:
    """The three share this machine and its page cache."""
    shards = [written(disk / f"model-{number}.safetensors", 4 << 20) for number in range(4)]
    words = ("--model", disk, "--cluster", "--ray-address", made.address)
    done = here("warmup", *words, "--python", made.python, cwd=disk, **WITHOUT_TOKEN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reads up to 16.0 MiB on 3 nodes, each from its own disks" in done.stderr
    assert done.stdout.count("WARM") >= 1
    assert [cached_share(shard) for shard in shards] == [1, 1, 1, 1]
    assert settles(lambda: left(nodes_folder) == [])


def test_nothing_listens_at_the_address(python: Path, small: Parcel) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        nowhere = RayDriver(str(python), f"127.0.0.1:{silent.getsockname()[1]}", WITHOUT_TOKEN)
        with pytest.raises(CouldNotQuery):
            list(node_responses(Machine(), nowhere, small, 8))


def test_nodes_lost_during_the_check_are_named(python: Path, small: Parcel) -> None:
    """A stopped raylet does not respond, like a disconnected node; Ray notices after half a minute."""
    with cluster(python, 3) as running:
        _, stopped, killed = running.raylets()
        stopped.suspend()
        killed.kill()
        responses = query(running, small, 120)
        assert len(responses) == 3
        missing = sorted(answer.missing for answer in responses if answer.missing)
        assert len(missing) == 2
        assert missing[0].startswith("Ray declared it dead")
        # which of them is the clock's
        assert missing[1].startswith(("it started no worker in time", "Ray declared it dead"))
