"""A driver that trains with verl's own classes, taken out of its sources, on a real Ray: for tests of what training leaves behind.

    python training_driver.py ADDRESS MANAGER_SOURCE MANAGER TRAINER_SOURCE HOW PATIENCE

It runs in an environment that holds Ray alone, so what else the classes name is stood in for: an actor that starts a child process
is the server with its engine. `fit` ends as HOW says while it validates: it "return"s, "raise"s, or "wait"s for a signal, and says so. An actor that is killed takes its
children with it a moment later: PATIENCE is how many seconds it may take until nothing is left.
Each line that is printed is a JSON document: how many named actors, engines and scheduler threads there are.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from pprint import pprint
from unittest import mock

ENGINE = "86399"  # seconds that an engine sleeps: the word by which it is found


class Settings(dict):
    """A configuration: missing values are None."""

    __getattr__ = dict.get


class Registry:
    def get_worker_info(self):
        import ray

        return dict.fromkeys(range(2), ray.get_runtime_context().get_node_id())


class Server:
    def __init__(self, *_):
        self.engine = None

    def get_server_address(self):
        return "127.0.0.1:1"

    def init_engine(self):
        self.engine = subprocess.Popen(["sleep", ENGINE])

    def wake_up(self):
        pass

    def sleep(self):
        pass


class Worker:
    def __init__(self, *_):
        pass


def engines(folder):
    """How many engines run below the Ray of this folder."""
    found = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            sleeps = ENGINE.encode() in (entry / "cmdline").read_bytes().split(b"\0")
            found += sleeps and f"RAY_TMPDIR={folder}".encode() in (entry / "environ").read_bytes().split(
                b"\0"
            )
        except OSError:
            continue
    return found


def classes(path, names, given):
    """Run the definitions of a source file that have these names, and return them."""
    tree = ast.parse(Path(path).read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") in names]
    scope = {"asyncio": asyncio, "importlib": importlib, "threading": threading, **given}
    exec(compile(tree, path, "exec"), scope)  # its annotations stay text, as this file's do
    return scope


def main(address, manager_source, manager_name, trainer_source, how, patience):
    import ray

    ray.init(address=address, namespace="training", log_to_driver=False)
    registry, server, worker = (ray.remote(num_cpus=0)(kind) for kind in (Registry, Server, Worker))
    center = registry.options(name="one_register_center").remote()  # without a handle it would be collected
    for name in ("omegaconf", "verl", "verl.utils", "verl.utils.tracking", "scheduler"):
        sys.modules[name] = mock.MagicMock()
    given = {
        "ray": ray,
        "logger": logging.getLogger(),
        "async_server_class": lambda **_: server,
        "AgentLoopWorker": worker,
        "ChatCompletionScheduler": mock.MagicMock(),
        "pprint": pprint,
        "RayWorkerGroup": None,
    }
    manager = classes(manager_source, {manager_name}, given)[manager_name]
    trainers = classes(trainer_source, {"RayPPOTrainer", "_ends_its_servers"}, given)
    trainer = object.__new__(trainers["RayPPOTrainer"])
    rollout = Settings(
        tensor_model_parallel_size=1,
        name="vllm",
        chat_scheduler="scheduler.Scheduler",
        agent=Settings(num_workers=2, custom_async_server=None),
    )
    model = Settings(path="model")
    config = Settings(
        model=model,
        rollout=rollout,
        actor_rollout_ref=Settings(rollout=rollout),
        trainer=Settings(val_only=True),
    )
    workers = types.SimpleNamespace(world_size=2, name_prefix="one")
    trainer.config, trainer.val_reward_fn = config, object()
    trainer._load_checkpoint = lambda: None

    def validate():
        if how == "raise":
            raise RuntimeError("training has failed")
        if how == "wait":
            print("it waits", flush=True)
            time.sleep(600)
        return {"reward": 1.0}

    def named():
        return [actor for actor in ray.util.list_named_actors() if "register" not in actor]

    def scheduler_runs():
        loop = getattr(trainer.async_rollout_manager, "chat_scheduler_loop", None)
        return loop is not None and loop.is_running()

    def count(when):
        said = {
            "when": when,
            "actors": len(named()),
            "engines": engines(os.environ["RAY_TMPDIR"]),
            "scheduler": scheduler_runs(),
        }
        print(json.dumps(said), flush=True)

    trainer._validate = validate
    trainer.async_rollout_manager = manager(config, workers)
    count("before")
    try:
        trainer.fit()
        ended = "returned"
    except (RuntimeError, KeyboardInterrupt, SystemExit) as error:
        ended = type(error).__name__
    ray.get(center.get_worker_info.remote())
    deadline = time.monotonic() + float(patience)
    while time.monotonic() < deadline and (engines(os.environ["RAY_TMPDIR"]) or named() or scheduler_runs()):
        time.sleep(0.2)
    count(ended)


if __name__ == "__main__":
    main(*sys.argv[1:])
