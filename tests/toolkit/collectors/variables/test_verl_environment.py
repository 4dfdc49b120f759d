"""Variables that verl passes to the processes of a job: from a miniature, and from releases compared with their own code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.miniatures.small_verl import small_verl

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.variables.verl_environment import (
    SERVERS,
    WORKERS,
    Job,
    Start,
    configured,
    for_servers,
    for_workers,
    start,
    while_running,
)
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.follow_values import Table
from verl_doctor.toolkit.sources.python.source import SourceTree

CONFIGURATION = {
    "seed": {"fixed": True, "value": 7},
    "ray_kwargs": {"ray_init": {"address": "auto", "runtime_env": {"env_vars": {"NCCL_DEBUG": "INFO"}}}},
}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A verl of this size."""
    tree = small_verl(tmp_path)
    return Job(tree, tree.folder / "trainer" / "main_ppo.py", "verl.trainer.main_ppo")


def with_configuration(job: Job, **changes: Any) -> Job:
    known = configured(Configuration("", "", "", (), CONFIGURATION, {**CONFIGURATION, **changes}))
    return Job(job.tree, job.program, job.module, known, capability=(9, 0))


def test_defaults_yield_to_the_driver_and_forced_values_do_not(job: Job) -> None:
    begun = start(with_configuration(job), {"VLLM_LOGGING_LEVEL": "INFO", "FORCED": "0"})
    assert dict(begun.env_vars) == {
        "NCCL_DEBUG": "INFO",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "FORCED": "1",
    }
    assert begun.address == "auto"
    assert not begun.env_vars.open


def test_driver_changes_its_own_environment(job: Job) -> None:
    begun = start(with_configuration(job), {})
    assert dict(begun.environ) == {"SET_BY_IMPORT": "0", "PYTHONHASHSEED": "7"}


def test_values_depending_on_a_missing_configuration_are_unclear(job: Job) -> None:
    begun = start(job, {})
    assert begun.environ["PYTHONHASHSEED"] is UNCLEAR
    assert begun.env_vars["CUDA_DEVICE_MAX_CONNECTIONS"] is UNCLEAR
    assert begun.env_vars["NCCL_DEBUG"] == "WARN"
    assert begun.env_vars.open


def test_each_variable_records_where_it_was_written(job: Job) -> None:
    override = OverrideWord(
        "", "/home/me/run.sh", 9, "applied", "ray_kwargs.ray_init.runtime_env.env_vars.NCCL_DEBUG"
    )
    known = configured(Configuration("", "", "", (override,), CONFIGURATION, CONFIGURATION))
    begun = start(Job(job.tree, job.program, job.module, known), {})
    assert begun.env_vars.places["NCCL_DEBUG"] == ("/home/me/run.sh", 9)
    path, line = begun.env_vars.places["VLLM_LOGGING_LEVEL"]
    assert (Path(path).name, line) == ("given.py", 6)


def test_program_without_ray_init_is_not_reached(job: Job, tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text("print('hello')\n")
    assert not start(Job(job.tree, program, "mine"), {}).reached


def test_actors_receive_further_variables_at_creation(job: Job) -> None:
    environ = Table({"NCCL_CUMEM_ENABLE": "1"})
    every = (*for_workers(job, environ), *for_servers(job, environ))
    given = {(variable.to, variable.name): variable.value for variable in every}
    assert given == {
        (WORKERS, "RANK"): UNCLEAR,
        (WORKERS, "WG_BACKEND"): "ray",
        (WORKERS, "MASTER_PORT"): UNCLEAR,
        (SERVERS, "NCCL_CUMEM_ENABLE"): "1",
    }


def test_variables_set_by_running_workers_are_found(job: Job) -> None:
    found = [
        (variable.name, variable.value, variable.to.rpartition(".")[2]) for variable in while_running(job)
    ]
    assert found == [("LATER", "1", "launch"), ("GONE", None, "launch")]


# Results of the releases' own code, with a stand-in for the device, whose capability is the first argument.
ORACLE = """
import importlib.util, json, sys, types
capability = json.loads(sys.argv[1])
device = types.ModuleType("verl.utils.device")
device.get_device_capability = lambda: capability
constants = types.ModuleType("ray._private.runtime_env.constants")
constants.RAY_JOB_CONFIG_JSON_ENV_VAR = "RAY_JOB_CONFIG_JSON_ENV_VAR"
torch = types.ModuleType("torch")
torch.version = types.SimpleNamespace(hip=None)
names = ("verl", "verl.utils", "ray", "ray._private", "ray._private.runtime_env")
sys.modules |= {name: types.ModuleType(name) for name in names}
sys.modules |= {"verl.utils.device": device, "ray._private.runtime_env.constants": constants, "torch": torch}
spec = importlib.util.spec_from_file_location("constants_ppo", sys.argv[2])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(json.dumps(module.get_ppo_ray_runtime_env()["env_vars"]))
"""
ENVIRONS: tuple[Mapping[str, str], ...] = (
    {},
    {"NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": "false", "CUDA_DEVICE_MAX_CONNECTIONS": "8"},
    {
        "NCCL_ALGO": "Tree",
        "VLLM_BATCH_INVARIANT": "1",
        "NCCL_CUMEM_ENABLE": "1",
        "HSA_NO_SCRATCH_RECLAIM": "",
    },
    {"TLLM_DISABLE_NVLS_MNNVL": "1", "VERL_KEEP_NVTX_INJECTION": "1", "PYTHONHASHSEED": "0"},
)


def of_release(tree: Path, environ: Mapping[str, str], capability: tuple[int, int]) -> Start:
    """Result of following the release's own program without configuration."""
    torch = tree.parent / "stand-in" / "torch"
    torch.mkdir(parents=True, exist_ok=True)
    torch.joinpath("__init__.py").touch()
    torch.joinpath("version.py").write_text("hip = None\n")
    configuration = configured(Configuration("", "", "", (), {}, {"global_profiler": {"tool": None}}))
    sources = SourceTree(tree / "verl", "verl")
    program = tree / "verl" / "trainer" / "main_ppo.py"
    libraries = {"torch": torch}
    return start(
        Job(
            sources,
            program,
            "verl.trainer.main_ppo",
            configuration,
            libraries=libraries,
            capability=capability,
        ),
        environ,
    )


@pytest.mark.real
@pytest.mark.parametrize("version", ["0.5.0", "0.6.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1"])
@pytest.mark.parametrize("capability", [(9, 0), (10, 0)])
def test_computed_table_equals_that_of_the_release(
    version: str, capability: tuple[int, int], wheel_tree: Callable[[str, str], Path]
) -> None:
    tree = wheel_tree("verl", version)
    constants = tree / "verl" / "trainer" / "constants_ppo.py"
    for environ in ENVIRONS:
        words = [sys.executable, "-c", ORACLE, json.dumps(capability), str(constants)]
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=dict(environ))
        begun = of_release(tree, environ, capability)
        depends = {"TRANSFER_QUEUE_ENABLE"}  # on the configuration
        depends |= {name for name, value in begun.environ.items() if value is UNCLEAR}
        given = {name: value for name, value in begun.env_vars.items() if name not in depends}
        expected = {name: value for name, value in json.loads(done.stdout).items() if name not in depends}
        assert begun.reached
        assert given == expected


@pytest.mark.real
def test_oldest_release_with_ray_init_uses_a_fixed_table(
    wheel_tree: Callable[[str, str], Path],
) -> None:
    begun = of_release(wheel_tree("verl", "0.4.1"), {"NCCL_DEBUG": "INFO"}, (9, 0))
    assert begun.reached
    assert begun.env_vars["NCCL_DEBUG"] == "WARN"
    assert not begun.env_vars.open


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "given"),
    [("0.6.1", None), ("0.7.1", "0"), ("0.8.0", "0"), ("0.9.0", "0"), ("0.9.1", "1")],
)
def test_variables_forced_on_rollout_servers_by_releases(
    version: str, given: str | None, wheel_tree: Callable[[str, str], Path]
) -> None:
    tree = wheel_tree("verl", version) / "verl"
    job = Job(SourceTree(tree, "verl"), tree / "trainer" / "main_ppo.py", "verl.trainer.main_ppo")
    found = {server.name: server.value for server in for_servers(job, Table({"NCCL_CUMEM_ENABLE": "1"}))}
    assert found.get("NCCL_CUMEM_ENABLE") == given
