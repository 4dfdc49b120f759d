"""The table compared with a real Ray: a task and an actor have the predicted `os.environ`, row by row. verl's own `get_ppo_ray_runtime_env` runs in the driver with a stand-in for torch, of which it reads only the version."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.environment import fetching
from support.kept import cannot_run, kept
from support.ray import head as ray_head

from verl_doctor.toolkit.collectors.launch.environment import as_far_as_shown
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Options, Target, discover

pytestmark = [pytest.mark.real, pytest.mark.slow]

RAY, VERL = "2.60.0", "0.9.1"
# Variables that Ray sets for its own processes.
MARKS = {"RAY_CLIENT_MODE", "RAY_JOB_ID", "RAY_LD_PRELOAD_ON_WORKERS", "RAY_RAYLET_PID"}
DRIVER = """
import importlib.util, json, os, sys, types
device = types.ModuleType("verl.utils.device")
device.get_device_capability = lambda: (None, None)
sys.modules |= {"verl": types.ModuleType("verl"), "verl.utils": types.ModuleType("verl.utils"), "verl.utils.device": device}
spec = importlib.util.spec_from_file_location("constants_ppo", sys.argv[1])
constants = importlib.util.module_from_spec(spec)
spec.loader.exec_module(constants)
import ray
given = constants.get_ppo_ray_runtime_env()
ray.init(sys.argv[2] or None, runtime_env=given, log_to_driver=False, include_dashboard=False)
@ray.remote
class Worker:
    def environ(self):
        return dict(os.environ)
@ray.remote
def task():
    return dict(os.environ)
print(json.dumps({"task": ray.get(task.remote()), "actor": ray.get(Worker.remote().environ.remote())}))
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with Ray, and verl's tree next to it."""

    python: Path
    verl: Path

    def run(self, environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its Python with these variables and the few that any program needs."""
        return subprocess.run(
            [self.python, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=dict(environ),
            cwd=self.verl.parent,
        )


@pytest.fixture(scope="module")
def environment(wheel_tree: Callable[[str, str], Path]) -> Environment:
    """Created once and kept next to the wheels."""

    def make(prefix: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", prefix], check=True, timeout=120)
        install = [prefix / "bin" / "python", "-m", "pip", "install", "-q", "--only-binary", ":all:"]
        done = subprocess.run(
            [*install, f"ray[default]=={RAY}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env=fetching(),
        )
        if done.returncode:
            cannot_run(f"Ray {RAY} could not be installed: {done.stderr.strip()[-200:]}")
        torch = next(prefix.glob("lib/python3*/site-packages")) / "torch"
        torch.mkdir()
        torch.joinpath("__init__.py").write_text("from . import version\n")
        torch.joinpath("version.py").write_text("hip = None\n")

    prefix = kept(
        f"environments/ray-{RAY}-beside-torch-{sys.version_info.major}.{sys.version_info.minor}", make
    )
    return Environment(prefix / "bin" / "python", wheel_tree("verl", VERL) / "verl")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for Ray's sockets; processes that still use it are ended."""
    path = Path(tempfile.mkdtemp(prefix="vd", dir="/tmp"))
    yield path
    ray_head.end((), path)


def bare(folder: Path, environment: Environment, **more: str) -> dict[str, str]:
    """The environment of a process of the test: nothing of this one's, and no other cluster's."""
    path = f"{environment.python.parent}:/usr/bin:/bin"
    ray = {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    return {"PATH": path, "HOME": str(folder), **ray, **more}


def started(folder: Path, environment: Environment, **more: str) -> str:
    """Start a cluster of one raylet, and return its address."""
    words = ["-m", "ray.scripts.scripts", "start", "--head", "--port=0", "--num-cpus=2", *ray_head.ALONE]
    words += ["--disable-usage-stats", "--include-dashboard=false"]
    done = environment.run(bare(folder, environment, **more), *words)
    assert done.returncode == 0, done.stderr
    return (folder / "ray" / "ray_current_cluster").read_text().strip()


def foretold(environment: Environment, environ: Mapping[str, str]) -> EffectiveEnvironment:
    """The table for a driver with these variables."""
    machine = Machine(environ=environ, cwd=environment.verl.parent)
    target = discover(Options(python=environment.python, verl=environment.verl), machine)
    found = Collection(registry.load().collectors, {Machine: machine, Target: target}).get(
        EffectiveEnvironment
    )
    assert isinstance(found, EffectiveEnvironment)
    return found


def seen(environment: Environment, environ: Mapping[str, str], address: str) -> dict[str, dict[str, str]]:
    """The environments of a task and of an actor of a driver with these variables."""
    constants = str(environment.verl / "trainer" / "constants_ppo.py")
    done = environment.run(environ, "-c", DRIVER, constants, address)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def wrong(
    table: EffectiveEnvironment, environ: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """Differences between predicted and real values."""
    known = {row.name: row.worker for row in table.rows}
    there = set(as_far_as_shown(environ, known).names()) - MARKS
    pairs = {
        name: (known[name].text if name in known else None, environ.get(name)) for name in there | {*known}
    }
    return {
        name: pair
        for name, pair in pairs.items()
        if pair[0] != pair[1] and not (name in known and known[name].undetermined)
    }


def test_environment_passed_on_by_a_running_raylet(environment: Environment, folder: Path) -> None:
    address = started(
        folder,
        environment,
        NCCL_DEBUG="TRACE",
        NCCL_IB_HCA="mlx5_0",
        HF_HOME="/of/the/raylet",
        VLLM_LOGGING_LEVEL="WARN",
    )
    environ = bare(
        folder,
        environment,
        RAY_ADDRESS=address,
        NCCL_DEBUG="INFO",
        NCCL_ALGO="Ring",
        NCCL_SOCKET_IFNAME="lo",
        HF_HOME="/of/the/driver",
        TOKENIZERS_PARALLELISM="false",
        CUDA_VISIBLE_DEVICES="0,1",
        VLLM_LOGGING_LEVEL="INFO",
    )
    table = foretold(environment, environ)
    real = seen(environment, environ, address)
    assert wrong(table, real["task"]) == {}
    assert wrong(table, real["actor"]) == {}
    assert len(table.raylets) == 1
    effective = {
        row.name: (row.worker.text, row.decided_by) for row in table.rows if not row.worker.undetermined
    }
    assert effective["NCCL_DEBUG"] == ("TRACE", "the raylet")
    assert effective["NCCL_ALGO"] == ("Ring", "verl")
    assert effective["NCCL_SOCKET_IFNAME"] == (None, "nobody")
    assert effective["HF_HOME"] == ("/of/the/raylet", "the raylet")
    assert effective["TOKENIZERS_PARALLELISM"] == (
        None,
        "nobody",
    )  # neither verl's default nor the driver's value
    assert [row.name for row in table.rows if row.dropped] == [
        "NCCL_DEBUG",
        "TOKENIZERS_PARALLELISM",
        "VLLM_LOGGING_LEVEL",
    ]


def test_job_that_starts_its_own_ray(environment: Environment, folder: Path) -> None:
    environ = bare(folder, environment, NCCL_DEBUG="INFO", HF_HOME="/of/the/driver", OMP_NUM_THREADS="3")
    table = foretold(environment, environ)
    real = seen(environment, environ, "")
    differences = wrong(table, real["actor"])
    assert differences.pop("RAY_ENABLE_UV_RUN_RUNTIME_ENV") == ("0", None)  # verl itself was not imported
    assert differences == {}
    assert (table.raylets, table.standing) == ((), "")
    assert table.worker("NCCL_DEBUG").text == "INFO"
    assert table.worker("OMP_NUM_THREADS").text == "3"


def test_ray_rejects_variables_given_by_both_job_and_verl(environment: Environment, folder: Path) -> None:
    """Why ENV116 is an error: equal values are rejected as well. Ray raises it before connecting."""
    job = json.dumps({"runtime_env": {"env_vars": {"NCCL_ALGO": "Ring"}}})
    environ = bare(folder, environment, NCCL_ALGO="Ring", RAY_JOB_CONFIG_JSON_ENV_VAR=job)
    constants = str(environment.verl / "trainer" / "constants_ppo.py")
    done = environment.run(environ, "-c", DRIVER, constants, "127.0.0.1:1")
    assert "Failed to merge the Job's runtime env" in done.stderr
