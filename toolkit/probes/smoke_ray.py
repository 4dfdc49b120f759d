"""Starts a private Ray, an actor, a placement group, and a worker group of verl's.

Runs under the target's interpreter.

Called with the number of GPUs and of CPUs that Ray is to have. On a machine without GPUs Ray hands out a
fictitious one: this checks that verl's workers are placed, named and called.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

from verl_doctor.toolkit.probes.smoke_steps import emit, step

NAMESPACE = "verl_doctor_smoke"
STORE = 100 * 1024 * 1024  # bytes of shared memory; Ray needs 75 MB at least
WORD = "VERL_DOCTOR_SMOKE_WORD"


def main(gpus: int, cpus: int) -> None:
    """Run step by step. A failure ends the child with its traceback."""
    with step("import ray"):
        ray = importlib.import_module("ray")
    with step("start Ray"):
        # Its own address: without one Ray looks for a cluster to join, and overwrites the address that it
        # finds.
        ray.init(
            address="local",
            num_cpus=cpus,
            num_gpus=gpus,
            namespace=NAMESPACE,
            object_store_memory=STORE,
            include_dashboard=False,
            runtime_env={"env_vars": {WORD: "heard"}},
        )
    with step("an actor"):
        actor(ray)
    with step("a placement group"):
        placed(ray, gpus)
    if importlib.util.find_spec("verl") is None:
        emit(left_out="a worker group of verl's: verl is not installed")
    else:
        with step("a worker group of verl's"):
            group(ray, gpus)
    with step("stop Ray"):
        ray.shutdown()


def actor(ray: Any) -> None:
    """Check that a named actor is found, has the runtime_env's variables, and returns a shared object.

    It returns the object through shared memory.
    """

    class Echo:
        def variable(self, name: str) -> Any:
            return os.environ.get(name)

        def many(self) -> bytes:
            return bytes(2 * 1024 * 1024)  # too large to bypass the object store

    made = ray.remote(Echo).options(name="echo", num_cpus=0).remote()
    found = ray.get_actor("echo", namespace=NAMESPACE)
    value = ray.get(found.variable.remote(WORD))
    if value != "heard":
        raise RuntimeError(
            f"the actor has {WORD}={value!r}: Ray does not pass on the env_vars of a runtime_env"
        )
    if len(ray.get(found.many.remote())) != 2 * 1024 * 1024:
        raise RuntimeError("an object from the object store is shorter than it was")
    ray.kill(made)


def placed(ray: Any, gpus: int) -> None:
    """Place bundles as verl does: one for each GPU, all on one node.

    Each task sees one GPU, each a different one.
    """
    group = ray.util.placement_group([{"CPU": 1, "GPU": 1}] * gpus, strategy="STRICT_PACK")
    if not group.wait(60):
        has, free = ray.cluster_resources(), ray.available_resources()
        raise RuntimeError(
            f"Ray did not place {gpus} x 1 GPU and 1 CPU within 60 s; it has {has}, free are {free}"
        )

    def seen() -> Any:
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    strategy = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
    task = ray.remote(seen)
    tasks = [
        task.options(
            num_gpus=1, num_cpus=1, scheduling_strategy=strategy(group, placement_group_bundle_index=index)
        ).remote()
        for index in range(gpus)
    ]
    devices = ray.get(tasks)
    emit(devices=devices)
    if len({*devices}) != gpus and not any(name.startswith("RAY_EXPERIMENTAL_NOSET_") for name in os.environ):
        raise RuntimeError(f"{gpus} tasks with a GPU each were given CUDA_VISIBLE_DEVICES {devices}")
    ray.util.remove_placement_group(group)


def group(ray: Any, gpus: int) -> None:
    """Place one worker on each GPU with verl's own classes and call them all."""
    base = importlib.import_module("verl.single_controller.base")
    marks = importlib.import_module("verl.single_controller.base.decorator")
    own = importlib.import_module("verl.single_controller.ray.base")

    class Ranks(base.Worker):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()

        @marks.register(dispatch_mode=marks.Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
        def ranks(self) -> tuple[int, int]:
            return self.rank, self.world_size

    pool = own.RayResourcePool(process_on_nodes=[gpus], use_gpu=True, max_colocate_count=1)
    workers = own.RayWorkerGroup(pool, own.RayClassWithInitArgs(cls=ray.remote(Ranks)))
    ranks = workers.ranks()
    if sorted(ranks) != [(rank, gpus) for rank in range(gpus)]:
        raise RuntimeError(f"{gpus} workers of a group report the ranks and world sizes {ranks}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
