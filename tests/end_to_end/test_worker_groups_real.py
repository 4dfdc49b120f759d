"""Worker groups created by verl's released classes on a real Ray, and the doctor's findings about them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.places import SUPPORT
from support.ray import head as ray_head
from support.ray.worker_group_stage import stage
from support.running import doctor
from support.trying import thorough

pytestmark = [pytest.mark.real, pytest.mark.slow]

DRIVER = SUPPORT / "ray" / "worker_group_driver.py"
COLOCATED = {"roles": ["actor_rollout", "critic"], "nodes": [2], "pool": "two"}
# The last release in which rank 0 makes a register centre, and the newest.
WITH_CENTRE, NEWEST = "0.5.0", "0.9.1"
RULES = "RAY115,RAY116,RAY125,RAY126,RAY127,RAY128,RAY129"


def released(*versions: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("on_stage", versions, indirect=True, scope="module")


@dataclass(frozen=True)
class Stage:
    """A running Ray whose workers import a released verl."""

    head: ray_head.Head
    environ: dict[str, str]

    @contextlib.contextmanager
    def driver(self, *groups: dict[str, Any]) -> Iterator[Driver]:
        """A driver that makes these groups, and holds them."""
        command = [str(self.head.python), str(DRIVER), self.head.address, json.dumps(groups)]
        with subprocess.Popen(
            command, env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Driver(process)
            finally:
                process.kill()

    def doctor(self, *words: str, cwd: Path) -> dict[str, Any]:
        done = doctor(
            *words, "--python", self.head.python, "--ray-address", self.head.address, "--format", "json",
            cwd=cwd, RAY_TMPDIR=str(self.head.folder), HOME=str(self.head.folder), RAY_AUTH_MODE="disabled",
        )  # fmt: skip
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def said(self, cwd: Path) -> dict[str, list[str]]:
        """Findings of the rules about worker groups for this Ray; others may run on the machine."""
        results = self.doctor("check", "--select", RULES, cwd=cwd)["results"]
        said: dict[str, list[str]] = {}
        for result in results:
            for finding in result["findings"]:
                if self.head.address in finding["evidence"]["read_from"]:
                    text = f"{finding['message']} | {finding['evidence']['found']} | {finding['remedy']}"
                    said.setdefault(result["code"], []).append(text)
        return said

    def seen(self, cwd: Path) -> dict[str, Any]:
        """Output of `verl-doctor actors` for this Ray."""
        (mine,) = until(lambda: self.doctor("actors", cwd=cwd)["ray"]["clusters"])
        assert isinstance(mine, dict)
        return mine


@dataclass(frozen=True)
class Driver:
    """A driver and its output: the actor names of each group, and responses."""

    process: subprocess.Popen[str]

    def hear(self) -> Any:
        """The next line of JSON; verl and Ray print too."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                return json.loads(line)
        raise AssertionError("the driver has ended")

    def ask(self, what: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.hear()


@pytest.fixture(scope="module")
def on_stage(
    request: pytest.FixtureRequest,
    wheel_tree: Callable[[str, str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    python = ray_head.environment() / "bin" / "python"
    folder = stage(tmp_path_factory.mktemp("stage"), wheel_tree("verl", request.param) / "verl")
    with ray_head.head(python, f"export PYTHONPATH={folder};", "--num-cpus=8", "--num-gpus=4") as at:
        environ = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "RAY_TMPDIR": str(at.folder),
            "HOME": str(at.folder),
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        yield Stage(at, environ)


def until(found: Callable[[], Any], seconds: float = 120) -> Any:
    """Repeat until there is a result: Ray notices a death a moment later."""
    deadline = time.monotonic() + seconds
    while not (answer := found()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return answer


@released(thorough(WITH_CENTRE), NEWEST)
def test_complete_group_loses_a_killed_rank(on_stage: Stage, tmp_path: Path) -> None:
    fused = {"roles": ["actor", "critic"], "nodes": [1], "pool": "one", "fused": True}
    with on_stage.driver(fused, COLOCATED) as driver:
        first, names = driver.hear(), driver.hear()
        assert driver.ask("ready") == 3
        groups = {group["name"]: group for group in on_stage.seen(tmp_path)["groups"]}
        assert on_stage.said(tmp_path) == {}

        colocated = groups[names[0].rpartition("_")[0]]
        assert colocated["class_name"] == "WorkerDict"
        assert colocated["roles"] == ["actor_rollout", "critic"]
        assert colocated["world_size"] == 2
        assert [(rank["rank"], rank["name"], rank["state"]) for rank in colocated["ranks"]] == [
            (0, names[0], "alive"),
            (1, names[1], "alive"),
        ]
        assert len({tuple(rank["gpus"]) for rank in colocated["ranks"]}) == 2
        assert all(rank["made_by"].startswith("the driver of job ") for rank in colocated["ranks"])
        assert groups[first[0].rpartition("_")[0]]["roles"] == ["actor", "critic"]

        assert driver.ask("end 1 critic_end") == "ended"
        said = until(lambda: on_stage.said(tmp_path))
        assert list(said) == ["RAY125"]
        (finding,) = said["RAY125"]
        pid = colocated["ranks"][1]["pid"]
        assert f"rank 1 of 2 of worker group {colocated['name']} of job {colocated['job']} is dead" in finding
        assert f"rank 1 (process {pid} on {colocated['ranks'][1]['address']})" in finding
        assert "its worker process has died" in finding
        assert [*on_stage.head.folder.glob(f"ray/session_2*/logs/worker-*-{pid}.err")], (
            "the remedy names this file"
        )
        (seen,) = [group for group in on_stage.seen(tmp_path)["groups"] if group["name"] == colocated["name"]]
        assert [rank["state"] for rank in seen["ranks"]] == ["alive", "dead"]
        driver.process.kill()

    until(lambda: all(job["finished"] for job in on_stage.seen(tmp_path)["jobs"]))
    assert on_stage.said(tmp_path) == {}, "a job that has ended hangs nowhere"


@released(NEWEST)
def test_detached_group_stays_when_its_driver_dies(on_stage: Stage, tmp_path: Path) -> None:
    with on_stage.driver({**COLOCATED, "detached": True, "pool": "left"}) as driver:
        names = driver.hear()
        assert driver.ask("ready") == 2
    name = names[0].rpartition("_")[0]

    def left() -> dict[str, Any] | None:
        groups = [group for group in on_stage.seen(tmp_path)["groups"] if group["name"] == name]
        return next((group for group in groups if group["job_ended"]), None)

    found = until(left)
    assert found is not None
    assert [(rank["state"], rank["detached"], rank["made_by"]) for rank in found["ranks"]] == [
        ("left behind", True, None)
    ] * 2
    assert on_stage.said(tmp_path) == {}, "that it is left over is another rule's"

    wish = {"roles": ["actor"], "nodes": [3], "pool": "next", "waits": True}
    with on_stage.driver(wish) as driver:
        assert driver.hear() == "waits"
        (waiting,) = until(lambda: on_stage.seen(tmp_path)["waiting"])
        assert waiting["name"] == "nextverl_group_3:0"
        said = until(lambda: on_stage.said(tmp_path))
        assert list(said) == ["RAY126"]
        assert "waits for 3 GPU, and 2 are free" in said["RAY126"][0]
        assert "which has ended" in said["RAY126"][0]
        assert "verl-doctor clean" in said["RAY126"][0]
    clear(on_stage, names, tmp_path)


def clear(on_stage: Stage, names: list[str], cwd: Path) -> None:
    """End a detached group, so that the next test finds its GPUs."""
    text = (
        "import sys, ray\nray.init(address=sys.argv[1], namespace='train', log_to_driver=False)\n"
        "for name in sys.argv[2:]: ray.kill(ray.get_actor(name))\n"
        "from ray.util.placement_group import remove_placement_group, get_placement_group\n"
        "remove_placement_group(get_placement_group('leftverl_group_2:0'))"
    )
    subprocess.run(
        [on_stage.head.python, "-c", text, on_stage.head.address, *names],
        env=on_stage.environ,
        check=True,
        capture_output=True,
    )
    until(lambda: all(rank["state"] == "dead" for g in on_stage.seen(cwd)["groups"] for rank in g["ranks"]))


@released(WITH_CENTRE)
def test_second_group_in_a_full_pool(on_stage: Stage, tmp_path: Path) -> None:
    """From 0.6 on, a task that looks for a free port in the pool waits before there is an actor."""
    with on_stage.driver({**COLOCATED, "pool": "full", "times": 2}) as driver:
        first = driver.hear()
        said = until(lambda: on_stage.said(tmp_path))
        groups = [
            group for group in on_stage.seen(tmp_path)["groups"] if group["ranks"][0]["state"] != "dead"
        ]
        (second,) = [group for group in groups if group["name"] != first[0].rpartition("_")[0]]
        assert second["ranks"][0]["state"] == "waiting"
        assert list(said) == ["RAY126"]
        assert (
            f"rank 0 of 2 of worker group {second['name']} of job {second['job']} waits for"
            in said["RAY126"][0]
        )
        assert "GPU that other actors of its placement group have" in said["RAY126"][0]
        assert first[0] in said["RAY126"][0]


@released(NEWEST)
def test_groups_that_share_gpus(on_stage: Stage, tmp_path: Path) -> None:
    apart = {"roles": ["critic"], "nodes": [2], "pool": "shared", "times": 2, "share": 2}
    with on_stage.driver(apart) as driver:
        first, second = driver.hear(), driver.hear()
        assert driver.ask("ready") == 4
        said = on_stage.said(tmp_path)
    assert list(said) == ["RAY127"]
    assert all(names[0].rpartition("_")[0] in said["RAY127"][0] for names in (first, second))
    assert "2 trainers share each of GPUs" in said["RAY127"][0]


@released(NEWEST)
def test_named_actor_of_a_running_job_dies(on_stage: Stage, tmp_path: Path) -> None:
    text = (
        "import os, sys, ray\nray.init(address=sys.argv[1], namespace='train', log_to_driver=False)\n"
        "class vLLMHttpServer:\n"
        "    def pid(self): return os.getpid()\n"
        "server = ray.remote(num_cpus=0)(vLLMHttpServer).options(name='vllm_server_0_0').remote()\n"
        "print(ray.get(server.pid.remote()), flush=True)\n"
        "sys.stdin.read()"
    )
    command = [str(on_stage.head.python), "-c", text, on_stage.head.address]
    with subprocess.Popen(
        command, env=on_stage.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        pid = int(job.stdout.readline())
        assert on_stage.said(tmp_path) == {}
        os.kill(pid, 9)
        said = until(lambda: on_stage.said(tmp_path))
        job.kill()
    assert list(said) == ["RAY129"]
    assert "vllm_server_0_0 (vLLMHttpServer)" in said["RAY129"][0]
    assert f"worker-*-{pid}.err" in said["RAY129"][0]


@released(WITH_CENTRE)
def test_missing_register_centre(on_stage: Stage, tmp_path: Path) -> None:
    with on_stage.driver(COLOCATED) as driver:
        driver.hear()
        driver.ask("ready")
        (centre,) = [
            actor for actor in on_stage.seen(tmp_path)["others"] if "register_center" in actor["name"]
        ]
        assert on_stage.said(tmp_path) == {}
        os.kill(centre["pid"], 9)
        said = until(lambda: on_stage.said(tmp_path))
    assert list(said) == ["RAY128"]
    assert "the register center of worker group" in said["RAY128"][0]
