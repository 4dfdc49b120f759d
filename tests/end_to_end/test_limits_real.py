"""A real Ray head that was started under low limits, judged from a shell with high ones."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.ray import head
from support.running import doctor

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def python() -> Path:
    return head.environment() / "bin" / "python"


def findings(at: head.Head, cwd: Path, *options: str) -> dict[str, list[str]]:
    """Findings about this raylet, by code: others may run on the machine."""
    done = doctor("check", "--python", at.python, "--select", "HOST", "--format", "json", *options, cwd=cwd)
    return {
        result["code"]: [
            f"{finding['message']} | {finding['remedy']}"
            for finding in result["findings"]
            if f"process {at.raylet})" in finding["message"]
        ]
        for result in json.loads(done.stdout)["results"]
    }


def test_raylet_with_low_limits(python: Path, tmp_path: Path) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > 2048, "this shell has low limits itself"
    with head.head(python, "ulimit -n 240;", "--num-cpus=96") as at:
        messages = findings(at, tmp_path)
    (lower,) = messages["HOST111"]
    assert f"240 open files (this shell: {soft})" in lower
    (few,) = messages["HOST103"]
    assert "may open 240 files" in few
    assert not messages["HOST101"], "it starts no more workers at once than the machine has CPUs"


def test_ordinary_raylet_has_no_findings(python: Path, tmp_path: Path) -> None:
    with head.head(python, "", "--num-cpus=2") as at:
        messages = findings(at, tmp_path)
    assert not any(messages.values()), messages


def test_cpu_count_agrees_with_ray(python: Path, wheel_tree: Callable[[str, str], Path]) -> None:
    """Ray's own count, in its environment and under an affinity that it ignores."""
    program = "from ray._private.utils import get_num_cpus; print(get_num_cpus())"
    messages = subprocess.run(
        ["taskset", "-c", "0", str(python), "-c", program], capture_output=True, text=True, check=True
    )
    from verl_doctor.toolkit.collectors.host.limits import host_limits
    from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
    from verl_doctor.toolkit.collectors.processes.processes import Processes
    from verl_doctor.toolkit.collectors.ray.cpus import RayCpus, ray_cpus
    from verl_doctor.toolkit.facts import Absent
    from verl_doctor.toolkit.machine import Machine

    folder = next((python.parents[1] / "lib").glob("python3*/site-packages/ray"))
    machine = Machine(environ={})
    trees = LibraryTrees((Tree(str(folder), "ray", head.VERSION, ""),))
    found = ray_cpus.collect(trees, host_limits.collect(machine, Processes(), Absent("no script")), machine)
    assert isinstance(found, RayCpus)
    assert found.counted == int(messages.stdout)
