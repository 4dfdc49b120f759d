"""Starting the engine once with the job's settings and environment, measured by its caches."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.collectors.configuration.launch_values import KeyValue, LaunchValues
from verl_doctor.toolkit.collectors.host.caches import CacheFolder, Caches
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import Tree, VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.commands.warmup.engine import compile_kernels, engine_arguments
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

# A vLLM that compiles one kernel into the folder of its variable, like the real one, and records how it was started.
VLLM = """
import json, os, pathlib
class SamplingParams:
    def __init__(self, **_): pass
class LLM:
    def __init__(self, **arguments):
        cache = pathlib.Path(os.environ["XDG_CACHE_HOME"], "vllm")
        if arguments["model"] == "broken":
            raise ValueError("Free memory on device is less than desired")
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "kernel.so").write_bytes(b"12345")
        (cache.parent / "started.json").write_text(json.dumps(arguments))
    def generate(self, *_, **__): pass
"""


class Seen:
    """Facts of a machine with a GPU; others are unknown."""

    def __init__(self, interpreter: Interpreter, caches: object, vllm: object) -> None:
        self._facts = {Interpreter: interpreter, Caches: caches, VllmTree: vllm, Variables: Variables()}

    def get(self, fact: type) -> Any:
        return self._facts.get(fact, Unknown("nobody looked"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "vllm.py").write_text(VLLM)
    return Machine(environ={"HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)}, cwd=tmp_path)


def seen(tmp_path: Path, caches: object = None) -> Any:
    folder = str(tmp_path / "home" / ".cache" / "vllm")
    known = Caches((CacheFolder("vLLM's compiled models", "VLLM_CACHE_ROOT", folder),))
    tree = Tree(str(tmp_path), "vllm", "0.31.0", "sys.path")
    interpreter = Interpreter(
        sys.executable,
        "3.11.7",
        "cpython",
        "cpython-311",
        "venv",
        "/env",
        (),
        (),
        "Linux",
        "x86_64",
        "2.36",
        "",
        "",
    )
    return Seen(interpreter, known if caches is None else caches, VllmTree(tree))


@pytest.mark.slow
def test_new_cache_entries_are_reported(machine: Machine, tmp_path: Path) -> None:
    planned = compile_kernels(machine, seen(tmp_path), "/model", dry_run=True)
    assert planned.outcome == "planned"
    first = compile_kernels(machine, seen(tmp_path), "/model", dry_run=False)
    assert (first.outcome, first.reason) == ("written", "")
    assert [(cache.holds, cache.files, cache.size) for cache in first.grown] == [
        ("vLLM's compiled models", 1, 5)
    ]
    assert json.loads((tmp_path / "home/.cache/started.json").read_text()) == {"model": "/model"}
    again = compile_kernels(machine, seen(tmp_path), "/model", dry_run=False)
    assert (again.outcome, again.grown) == ("nothing new", ())


def test_engine_that_does_not_start_is_a_failure_with_its_error(machine: Machine, tmp_path: Path) -> None:
    ended = compile_kernels(machine, seen(tmp_path), "broken", dry_run=False)
    assert ended.outcome == "failed"
    assert "Free memory on device" in ended.reason


def test_compilation_needs_a_gpu_and_a_model(machine: Machine, tmp_path: Path) -> None:
    without = compile_kernels(machine, seen(tmp_path, Absent("no GPU here")), "/model", dry_run=False)
    assert (without.outcome, without.reason) == ("not applicable", "no GPU here")
    assert compile_kernels(machine, seen(tmp_path), "", dry_run=False).outcome == "not applicable"


def test_engine_receives_the_arguments_that_verl_passes() -> None:
    rollout = "actor_rollout_ref.rollout"
    settings = {
        f"{rollout}.tensor_model_parallel_size": 2,
        f"{rollout}.gpu_memory_utilization": 0.6,
        f"{rollout}.enforce_eager": False,
        f"{rollout}.max_model_len": None,
        "data.max_prompt_length": 1024,
        "data.max_response_length": 512,
    }
    values = LaunchValues({key: KeyValue(key, value) for key, value in settings.items()})
    assert engine_arguments("/m", values) == {
        "model": "/m",
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": 0.6,
        "enforce_eager": False,
        "max_model_len": 1536,
    }
