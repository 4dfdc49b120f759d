"""A Ray cluster's contents, as its control store (GCS) reports: nodes, jobs, actors, placement groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RayNode:
    """One node.

    `resources` are its totals by name, `free` the unused part; a dead node keeps its last totals.

    `started` and `ended` are in seconds since the epoch, 0 if not yet. `end` is the GCS's term for how a dead
    node ended: EXPECTED_TERMINATION, UNEXPECTED_TERMINATION, AUTOSCALER_DRAIN_IDLE..., and `died` is Ray's
    message.
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
    """One driver that is or was connected. Times are in seconds since the epoch, 0 if it has not ended.

    `address` is the node on which the driver ran, `pid` its process there, and `worker` Ray's ID for that
    process.
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
    """One actor.

    `state` is the GCS's own term: DEPENDENCIES_UNREADY, PENDING_CREATION, ALIVE, RESTARTING or DEAD.

    `job` created it; `node` and `pid` are where it runs, empty while it is pending. `detached` actors outlive
    their job. `started` and `ended` are in seconds since the epoch, 0 if not yet. `needs` are the resources
    that it requests, `group` its placement group. `died` is Ray's message on why it ended, `end` its term:
    WORKER_DIED, NODE_DIED, OWNER_DIED, RAY_KILL, OUT_OF_SCOPE (no references left), REF_DELETED,
    OUT_OF_MEMORY or INIT_FAILED; "" if Ray gives none.

    `worker` is Ray's ID for its process, `owner` the ID of the process that created it: when the owner ends,
    Ray ends the actor unless it is detached. `gpus` are the numbers of its GPUs on its node, as Ray counts
    them. `variables` are RANK, WORLD_SIZE and WG_PREFIX if its `runtime_env` sets them, and `roles` those
    that share the process of verl's `WorkerDict`.
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
    """One placement group.

    `state` is the GCS's own term: PENDING, PREPARED, CREATED, REMOVED or RESCHEDULING.

    `bundles` are the resources of each part, `nodes` where each is placed, "" if not placed yet, and
    `strategy` how they are to be placed: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD. `job` requested it, and
    `actor` of that job, "" if its driver did. `waits_for` is the GCS's term for its last attempt to place it:
    NO_RESOURCES if it waits for others to end, INFEASIBLE if no living node could ever hold it.
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
