"""verl's released async server on a real Ray, with a miniature of vLLM around it: an actor whose engine is a spawned child.

The released file itself is run, unchanged or patched: its server class as a Ray actor, its executor class in the child. Of vLLM
there is only what stands between the two: how the process is started, and that it hands on RAY_ADDRESS in some cases.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.miniatures.source_trees import write

SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
PREFIX = "abc123"

_ANYTHING = "def __getattr__(name):\n    if name.startswith('__'):\n        raise AttributeError(name)\n    return type(name, (), {})\n"
_DUMMIES = (
    "starlette/requests", "starlette/responses", "vllm/__init__", "vllm/inputs", "vllm/outputs", "vllm/worker/worker_base",
    "vllm/entrypoints/logger", "vllm/entrypoints/openai/protocol",
)  # fmt: skip
_FILES = {
    **{f"{name}.py": _ANYTHING for name in _DUMMIES},
    "cloudpickle.py": "from ray.cloudpickle import dumps, loads\n",
    "zmq.py": "",
    "omegaconf.py": """\
        class DictConfig(dict):
            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return self.get(name)
        """,
    "verl/utils/fs.py": "def copy_to_local(path):\n    return path\n",
    "verl/workers/rollout/async_server.py": "class AsyncServerBase:\n    pass\n",
    "vllm/entrypoints/openai/serving_chat.py": """\
        class OpenAIServingChat:
            def __init__(self, *args, **options):
                pass
        """,
    "vllm/entrypoints/openai/serving_models.py": """\
        class BaseModelPath:
            def __init__(self, **options):
                pass
        class OpenAIServingModels:
            def __init__(self, *args):
                pass
        """,
    "vllm/engine/arg_utils.py": """\
        from types import SimpleNamespace
        class AsyncEngineArgs:
            def __init__(self, distributed_executor_backend, tensor_parallel_size, **options):
                self.distributed_executor_backend = distributed_executor_backend
                self.size = tensor_parallel_size
            def create_engine_config(self):
                parallel = SimpleNamespace(tensor_parallel_size=self.size)
                return SimpleNamespace(instance_id=None, parallel_config=parallel, executor=self.distributed_executor_backend)
        """,
    "vllm/v1/executor/abstract.py": """\
        class Executor:
            def __init__(self, vllm_config):
                self.vllm_config = vllm_config
                self._init_executor()
        """,
    "vllm/v1/engine/async_llm.py": """\
        import json, multiprocessing, os, time
        import ray
        class AsyncLLM:
            model_config = None
            @classmethod
            def from_vllm_config(cls, vllm_config):
                if os.environ.get("VLLM_WORKER_MULTIPROC_METHOD") != "spawn":
                    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
                process = multiprocessing.get_context("spawn").Process(target=run_engine, args=(vllm_config,))
                process.start()
                process.join()
                return cls()
        def run_engine(vllm_config):
            told = {"error": ""}
            try:
                told["workers"] = vllm_config.executor(vllm_config).collective_rpc("name")
            except BaseException as error:
                told["error"] = f"{type(error).__name__}: {error}"
            if ray.is_initialized():
                told["joined"] = ray.get_runtime_context().gcs_address
                told["elsewhere"] = len(ray.util.list_named_actors(all_namespaces=True))
            with open(os.environ["ENGINE_TOLD"] + ".part", "w") as file:
                json.dump(told, file)
            os.rename(file.name, os.environ["ENGINE_TOLD"])
            for _ in range(6000):
                if os.path.exists(os.environ["ENGINE_TOLD"] + ".heard"):
                    break
                time.sleep(0.1)
        """,
    "job.py": """\
        import json, sys
        import ray
        from omegaconf import DictConfig
        asked = json.loads(sys.argv[1])
        ray.init(**asked["init"])

        @ray.remote(num_cpus=0)
        class WorkerDict:
            def __init__(self, name):
                self.name = name
            def execute_method(self, method, *args, **options):
                return self.name

        names = [f"{asked['prefix']}WorkerDict_0:{rank}" for rank in range(asked["workers"])]
        more = {"namespace": asked["workers_in"], "lifetime": "detached"} if asked["workers_in"] else {}
        workers = [WorkerDict.options(name=name, **more).remote(name) for name in names]
        ray.get([worker.execute_method.remote("ready") for worker in workers])

        from vllm_async_server import AsyncvLLMServer
        rollout = DictConfig(
            tensor_model_parallel_size=2, max_model_len=8, prompt_length=4, response_length=4, multi_turn=DictConfig()
        )
        job = DictConfig(model=DictConfig(path="a/b"), rollout=rollout)
        job["actor_rollout_ref"] = job
        server = AsyncvLLMServer.options(runtime_env={"env_vars": asked["environ"]}).remote(job, 1, 0, asked["prefix"])
        ray.get(server.init_engine.remote())
        """,
}


@dataclass(frozen=True)
class LoggedError:
    """What the engine process reported at its end: its error, the actors that responded, and the Ray that it had joined."""

    error: str = ""
    workers: tuple[str, ...] = ()
    joined: str = ""
    elsewhere: int = 0


def stage(folder: Path, server: bytes) -> Path:
    """Lay out the miniature, with this text of verl's server in it."""
    write(folder, _FILES)
    (folder / "vllm_async_server.py").write_bytes(server)
    return folder


def play(
    python: Path,
    stage: Path,
    init: Mapping[str, Any],
    *,
    home: Path,
    environ: Mapping[str, str],
    workers_in: str = "",
    workers: int = 2,
    meanwhile: Callable[[], None] = lambda: None,
) -> LoggedError:
    """Run the job on a Ray that `init` names; the server's actor gets `environ` in addition. `home` is RAY_TMPDIR and HOME.

    `meanwhile` is called when the engine process has found its workers, or not, and before it ends.
    """
    answer, heard = stage / "told.json", stage / "told.json.heard"
    answer.unlink(missing_ok=True)
    heard.unlink(missing_ok=True)
    common = {"PYTHONPATH": str(stage), "ENGINE_TOLD": str(answer)}
    asked = {
        "init": {**init, "runtime_env": {"env_vars": common}, "log_to_driver": False},
        "environ": {"VERL_VLLM_DISTRIBUTED_BACKEND": "ray", **environ},
        "prefix": PREFIX,
        "workers_in": workers_in,
        "workers": workers,
    }
    around = {
        "RAY_TMPDIR": str(home),
        "HOME": str(home),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    process = subprocess.Popen(
        [python, "job.py", json.dumps(asked)],
        cwd=stage,
        env={**os.environ, **around, **common},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        for _ in range(3000):
            if answer.is_file() or process.poll() is not None:
                break
            time.sleep(0.1)
        meanwhile()
        heard.touch()
        said, _ = process.communicate(timeout=180)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    assert answer.is_file(), said[-3000:]
    told = json.loads(answer.read_text())
    return LoggedError(**{**told, "workers": tuple(told.get("workers", ()))})
