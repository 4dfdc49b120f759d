"""A driver that makes worker groups with verl's own classes, out of a released wheel, on a real Ray: for tests of what is seen of them.

    python worker_group_driver.py ADDRESS GROUPS

Its `verl` is the stage that `worker_group_stage.py` makes. GROUPS is a JSON list of `Wish`es. For each group that is made it prints
a line, the names of its actors; then it holds all handles until its input ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

import ray
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import base


class Role(Worker):
    """Common part of every role: a process group to join."""

    def __init__(self, *_, **__):
        super().__init__()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self):
        """Load nothing."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def end(self, rank):
        """Die as the kernel's memory killer lets a process die."""
        if int(os.environ["RANK"]) == rank:
            os.kill(os.getpid(), signal.SIGKILL)


def group(wish):
    """Make one worker group: `roles` in one process each, on `nodes` (processes per node)."""
    pool = base.RayResourcePool(
        wish["nodes"],
        use_gpu=True,
        max_colocate_count=wish.get("share", 1),
        name_prefix=wish.get("pool", "pool"),
        detached=wish.get("detached", False),
    )
    role = ray.remote(Role)
    described = {key: base.RayClassWithInitArgs(cls=role) for key in wish["roles"]}
    if wish.get("fused"):
        whole = base.create_colocated_worker_cls_fused(described)
    elif wish.get("plain"):
        whole = described[wish["roles"][0]]
    else:
        whole = base.create_colocated_worker_cls(described)
    made = []
    for _ in range(wish.get("times", 1)):
        made.append(
            base.RayWorkerGroup(
                resource_pool=pool, ray_cls_with_init=whole, detached=wish.get("detached", False)
            )
        )
        said(made[-1].worker_names)
    return made


def said(what):
    print(json.dumps(what), flush=True)


def main(address, groups):
    ray.init(address=address, namespace="train", log_to_driver=False)
    held = []
    # A pool that is never placed lets its maker wait for ever, as verl does.
    for wish in json.loads(groups):
        making = threading.Thread(target=lambda wish=wish: held.extend(group(wish)), daemon=True)
        making.start()
        making.join(None if not wish.get("waits") else 3)
        if wish.get("waits"):
            said("waits")
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "ready":
            said(len([ray.get(actor.__ray_ready__.remote()) for group in held for actor in group._workers]))
        elif word == "end":
            rank, method = rest.split()
            held[-1].execute_all_async(method, int(rank))
            said("ended")
        elif word == "drop":
            held.clear()
            said("dropped")


if __name__ == "__main__":
    main(*sys.argv[1:])
