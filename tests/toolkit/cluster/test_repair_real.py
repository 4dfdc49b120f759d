"""`fix --cluster` on a real cluster: two nodes share an environment, a third has another; each is repaired once."""

from __future__ import annotations

import importlib.resources
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ray import head
from support.ray.cluster import Cluster, cluster
from support.running import Doctor

from verl_doctor.toolkit.commands.demo import demo
from verl_doctor.toolkit.system import toml

pytestmark = [pytest.mark.thorough, pytest.mark.real, pytest.mark.slow(seconds=60)]

FAULTY = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"


def with_faults(to: Path) -> Path:
    """A copy of the environment with Ray, in which the miniature of `demo` is installed."""
    shutil.copytree(head.environment(), to, symlinks=True)
    site = next(to.glob("lib/python*/site-packages"))
    data = importlib.resources.files("verl_doctor.toolkit") / "data/miniature.toml"
    for package in toml.loads(data.read_text("utf-8"))["package"]:
        demo._install(site, **package)
    return site / FAULTY


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    top = tmp_path_factory.mktemp("environments")
    return with_faults(top / "shared"), with_faults(top / "own")


@pytest.fixture(scope="module")
def made(files: tuple[Path, Path]) -> Iterator[Cluster]:
    shared, own = (file.parents[7] / "bin" / "python" for file in files)
    with cluster(shared, 3, last=own) as running:
        yield running


def test_each_environment_is_repaired_once_and_all_nodes_are_checked_again(
    made: Cluster, files: tuple[Path, Path], tmp_path: Path, here: Doctor
) -> None:
    target = ("--cluster", "--budget", "180", "--python", str(made.python), "--ray-address", made.address)
    words = ("fix", *target, "--select", "VLLM", "--format", "json")
    planned = here(*words, cwd=tmp_path, RAY_TMPDIR=str(made.folder))
    assert "the environment exists in 2 places" in planned.stderr
    assert ["verl-doctor:" in file.read_text() for file in files] == [False, False]

    done = here(*words, "--apply", cwd=tmp_path, RAY_TMPDIR=str(made.folder))
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert [repair["outcome"] for repair in report["repairs"]] == ["repaired", "repaired"], done.stderr
    there = report["repairs"][1]
    assert there["transaction"] is None
    assert "own/.verl-doctor" in there["reason"]
    assert ["# verl-doctor: " in file.read_text() for file in files] == [True, True]
    assert files[0].read_text() == files[1].read_text()
    assert report["nodes"]["answered"] == 3
    assert done.returncode == 0

    again = here(*words, "--apply", cwd=tmp_path, RAY_TMPDIR=str(made.folder))
    assert json.loads(again.stdout)["repairs"] == []

    (hint,) = [line for line in done.stderr.splitlines() if "undoes everything, here and there" in line]
    back = shlex.split(hint.partition(" undoes ")[0])[1:]
    undone = here(*back, "--budget", "180", cwd=tmp_path, RAY_TMPDIR=str(made.folder))
    assert undone.returncode == 0, undone.stderr
    assert undone.stdout.count("undone: ") == 2
    assert ["verl-doctor:" in file.read_text() for file in files] == [False, False]
