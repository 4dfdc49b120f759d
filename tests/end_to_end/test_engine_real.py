"""verl's released async servers on a real Ray: how their engine process finds 0 workers, and that it finds them after the repair."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from support.miniatures.engine_sources import chooses_process
from support.miniatures.source_trees import vllm
from support.ray import engine_play
from support.ray import head as ray_head
from support.ray.engine_play import LoggedError
from support.running import doctor

pytestmark = [pytest.mark.real, pytest.mark.slow]

RELEASES = ("0.4.0", "0.5.0")  # for 0.4.1: `test_ray_started_by_the_job`
SPAWN = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
WORKERS = ("abc123WorkerDict_0:0", "abc123WorkerDict_0:1")
SCRIPT = """\
export VLLM_WORKER_MULTIPROC_METHOD=spawn VERL_VLLM_DISTRIBUTED_BACKEND=ray
python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.mode=async actor_rollout_ref.rollout.name=vllm
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return ray_head.environment() / "bin" / "python"


@dataclass(frozen=True)
class Cluster:
    """A running Ray with the released or repaired servers on it."""

    address: str
    folder: Path
    python: Path

    def play(self, stage: Path, environ: dict[str, str] | None = None, **more: object) -> LoggedError:
        init = {"address": self.address, "namespace": "train"}
        return engine_play.play(
            self.python, stage, init, home=self.folder, environ={**SPAWN, **(environ or {})}, **more
        )  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cluster(python: Path) -> Iterator[Cluster]:
    with ray_head.head(python, "", "--num-cpus=4") as head:
        yield Cluster(head.address, head.folder, python)


@dataclass(frozen=True)
class Tree:
    """A copy of a released verl, and the doctor's commands about it."""

    folder: Path

    @property
    def server(self) -> Path:
        return self.folder / engine_play.SERVER

    def doctor(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run a command about this tree, a miniature of vLLM, and a job that rolls out async."""
        return doctor(*command.split(), *more, cwd=self.folder)

    def repair(self) -> None:
        done = self.doctor(
            "fix --apply --select RAY120,RAY122 --verl verl --vllm vllm", str(self.folder / "run.sh")
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path, wheel_tree: Callable[[str, str], Path]) -> Callable[[str], Tree]:
    def copied(release: str) -> Tree:
        shutil.copytree(wheel_tree("verl", release) / "verl", tmp_path / "verl")
        vllm(
            tmp_path, {"utils.py": chooses_process().replace("HOW", "VLLM_WORKER_MULTIPROC_METHOD")}, "0.8.5"
        )
        (tmp_path / "run.sh").write_text(SCRIPT)
        return Tree(tmp_path)

    return copied


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[Tree], Path]:
    return lambda tree: engine_play.stage(tmp_path / "stage", tree.server.read_bytes())


def said(cluster: Cluster, said: dict[str, str], **environ: str) -> Callable[[], None]:
    """Put the doctor's findings about the running Rays into a dictionary, by code."""

    def ask() -> None:
        codes = "RAY123,RAY124"
        done = doctor(
            *f"check --format json --select {codes} --python {cluster.python}".split(),
            cwd=cluster.folder,
            RAY_TMPDIR=str(cluster.folder),
            **environ,
        )
        for result in json.loads(done.stdout)["results"]:
            assert result["status"] in {"pass", "fail"}, result
            for finding in result["findings"]:
                said[result["code"]] = finding["message"]

    return ask


def found(told: LoggedError, cluster: Cluster) -> bool:
    """Whether the engine process found its workers in the cluster in which they are."""
    return (told.error, told.workers, told.joined) == ("", WORKERS, cluster.address)


def sessions(folder: Path) -> set[str]:
    """The Rays that were ever started in a RAY_TMPDIR."""
    return {path.name for path in folder.glob("ray/session_2*")}


@pytest.mark.parametrize("release", RELEASES)
def test_unknown_address(
    tree: Callable[[str], Tree], stage: Callable[[Tree], Path], cluster: Cluster, release: str
) -> None:
    """Ray's address file is not where the engine process looks, as in another container: it starts its own Ray."""
    verl = tree(release)
    released = verl.server.read_bytes()
    elsewhere = cluster.folder / release
    elsewhere.mkdir()
    looks = {"RAY_TMPDIR": str(elsewhere)}
    told = cluster.play(stage(verl), looks)
    assert "has 0 actors, but vllm_dp_size: 1 * vllm_tp_size: 2 = 2 is expected" in told.error
    assert told.elsewhere == 0
    assert told.joined != cluster.address
    assert len(sessions(elsewhere)) == 1

    verl.repair()
    compile(verl.server.read_bytes(), str(verl.server), "exec")
    told = cluster.play(stage(verl), looks)
    assert found(told, cluster), told
    assert len(sessions(elsewhere)) == 1, "no other was started"

    repaired = verl.server.read_bytes()
    verl.repair()
    assert verl.server.read_bytes() == repaired, "a second time there is nothing to do"
    assert verl.doctor("undo --all --verl verl").returncode == 0
    assert verl.server.read_bytes() == released


def test_another_cluster(
    tree: Callable[[str], Tree], stage: Callable[[Tree], Path], cluster: Cluster, python: Path
) -> None:
    verl = tree("0.4.0")
    with ray_head.head(python, "", "--num-cpus=1") as head:
        other = head.address
        live: dict[str, str] = {}
        ask = said(cluster, live, RAY_ADDRESS=other)
        told = cluster.play(stage(verl), {"RAY_ADDRESS": other}, meanwhile=ask)
        assert "has 0 actors" in told.error
        assert f"is in the Ray at {other}" in live.pop("RAY124")
        assert not live
        assert (told.joined, told.elsewhere) == (other, 0)
        verl.repair()
        told = cluster.play(stage(verl), {"RAY_ADDRESS": other}, meanwhile=ask)
        assert not live
        assert found(told, cluster), told


def test_ray_started_by_the_job(
    tree: Callable[[str], Tree], stage: Callable[[Tree], Path], cluster: Cluster, python: Path
) -> None:
    """`ray.init` writes no address file: this is every job on one node that sets VLLM_WORKER_MULTIPROC_METHOD."""
    verl = tree("0.4.1")
    own = cluster.folder / "own"
    own.mkdir()
    init = {"namespace": "train", "num_cpus": 3, "include_dashboard": False}
    play = partial(engine_play.play, python, init=init, home=own, environ=SPAWN)
    told = play(stage(verl))
    assert "has 0 actors" in told.error
    assert told.elsewhere == 0
    assert len(sessions(own)) == 2, "the job's, and that of its engine process"
    verl.repair()
    told = play(stage(verl))
    assert (told.error, told.workers, told.elsewhere) == ("", WORKERS, 2)
    assert len(sessions(own)) == 3


def test_engine_without_a_namespace(
    tree: Callable[[str], Tree], stage: Callable[[Tree], Path], cluster: Cluster
) -> None:
    verl = tree("0.5.0")
    edited = verl.server.read_text().replace("ray.init(namespace=namespace)", 'ray.init(address="auto")')
    verl.server.write_text(edited)
    told = cluster.play(stage(verl))
    assert "has 0 actors" in told.error
    assert told.joined == cluster.address
    assert told.elsewhere >= len(WORKERS), "they are there, in their own namespace"
    verl.repair()
    told = cluster.play(stage(verl))
    assert found(told, cluster), told


def test_unrepairable_faults_are_reported(
    tree: Callable[[str], Tree], stage: Callable[[Tree], Path], cluster: Cluster
) -> None:
    """Workers in another namespace than their server: no address helps. The record is written as requested."""
    verl = tree("0.4.1")
    live: dict[str, str] = {}
    told = cluster.play(stage(verl), workers_in="other", meanwhile=said(cluster, live))
    assert "has 0 actors" in told.error
    assert "0 of its workers are in namespace train, and 2 in namespace other" in live.pop("RAY123")
    assert not live
    verl.repair()
    before = sessions(cluster.folder)
    record = {"VERL_ENGINE_RECORD_DIR": str(verl.folder)}
    told = cluster.play(stage(verl), record, workers_in="another")
    assert "has 0 actors of 2 expected" in told.error
    assert f"in namespace train of the Ray cluster at {cluster.address} (session_" in told.error
    assert "such ones in ['another', 'other'] namespace" in told.error
    assert sessions(cluster.folder) == before
    assert told.error.startswith(
        f"RuntimeError: {(verl.folder / 'train:abc123:1:0.log').read_text().strip()}"
    )


def test_vllm_that_passes_the_address_on(
    tree: Callable[[str], Tree], stage: Callable[[Tree], Path], cluster: Cluster, tmp_path: Path
) -> None:
    """Without the variable vLLM passes the address, in the released file too: nothing is found or repaired."""
    verl = tree("0.4.1")
    elsewhere = {"VLLM_WORKER_MULTIPROC_METHOD": "", "RAY_TMPDIR": str(cluster.folder / "none")}
    told = cluster.play(stage(verl), elsewhere)
    assert found(told, cluster), told
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT.replace("VLLM_WORKER_MULTIPROC_METHOD=spawn", ""))
    done = verl.doctor("check --select RAY120,RAY121,RAY122 --verl verl --vllm vllm", str(script))
    assert done.returncode == 0, done.stdout
