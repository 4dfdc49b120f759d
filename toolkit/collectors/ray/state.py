"""What a Ray cluster is made of, as its control store (GCS) tells it: nodes, jobs, actors, placement groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RayNode:
    """One node. `resources` are its totals by name, `free` what of them nobody has; a dead one has the totals of its life.

    `started` and `ended` are in seconds since the epoch, 0 when it has not. `end` is GCS's own word for how a dead one ended:
    EXPECTED_TERMINATION, UNEXPECTED_TERMINATION, AUTOSCALER_DRAIN_IDLE..., and `died` says why in Ray's words.
    """

    node: str
    address: str
    host: str = ""
    alive: bool = True
    head: bool = False
    resources: Mapping[str, float] = field(default_factory=dict)
    free: Mapping[str, float] = field(default_factory=dict)
    started: float = 0.0
    ended: float = 0.0
    end: str = ""
    died: str = ""


@dataclass(frozen=True)
class RayJob:
    """One driver that is or was connected. Times are in seconds since the epoch, 0 when it has not ended.

    `address` is the node on which the driver ran, `pid` its process there, and `worker` Ray's number for that process.
    """

    job: str
    namespace: str = ""
    address: str = ""
    pid: int = 0
    finished: bool = False
    started: float = 0.0
    ended: float = 0.0
    entrypoint: str = ""
    worker: str = ""


@dataclass(frozen=True)
class RayActor:
    """One actor. `state` is GCS's own word: DEPENDENCIES_UNREADY, PENDING_CREATION, ALIVE, RESTARTING or DEAD.

    `job` created it; `node` and `pid` say where it runs, empty while it is pending. `detached` ones outlive their job.
    `started` and `ended` are in seconds since the epoch, 0 when it has not. `needs` are the resources that it asks for, `group` its
    placement group. `died` says in Ray's words why it has ended, `end` in one word: WORKER_DIED, NODE_DIED, OWNER_DIED, RAY_KILL,
    OUT_OF_SCOPE (nothing referred to it any more), REF_DELETED, OUT_OF_MEMORY or INIT_FAILED; "" when Ray does not say.

    `worker` is Ray's number for its process, `owner` that of the process that made it: when the owner ends, Ray ends the actor unless
    it is detached. `gpus` are the numbers of its GPUs on its node, as Ray counts them. `variables` are RANK, WORLD_SIZE and WG_PREFIX
    where its `runtime_env` sets them, and `roles` those that share the process of verl's `WorkerDict`.
    """

    actor: str
    state: str
    name: str = ""
    namespace: str = ""
    class_name: str = ""
    detached: bool = False
    job: str = ""
    node: str = ""
    address: str = ""
    pid: int = 0
    started: float = 0.0
    ended: float = 0.0
    needs: Mapping[str, float] = field(default_factory=dict)
    group: str = ""
    died: str = ""
    end: str = ""
    worker: str = ""
    owner: str = ""
    gpus: tuple[int, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ()


@dataclass(frozen=True)
class RayGroup:
    """One placement group. `state` is GCS's own word: PENDING, PREPARED, CREATED, REMOVED or RESCHEDULING.

    `bundles` are the resources of each part, `nodes` where each lies, "" for one that has no place yet, and `strategy` says whether
    they are to lie together: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD. `job` asked for it, and `actor` of that job, "" when its
    driver did. `waits_for` is GCS's word for its last try to place it: NO_RESOURCES when it waits for others to end, INFEASIBLE when
    no node that is alive could ever hold it.
    """

    group: str
    state: str
    name: str = ""
    namespace: str = ""
    job: str = ""
    actor: str = ""
    detached: bool = False
    bundles: tuple[Mapping[str, float], ...] = ()
    nodes: tuple[str, ...] = ()
    strategy: str = ""
    waits_for: str = ""
