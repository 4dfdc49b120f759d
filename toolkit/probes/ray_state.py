"""Reports the contents of a Ray cluster's control store (GCS).

Runs under the target's interpreter, with the target's Ray.

It is passed as text, so it needs the standard library and Ray only. Nothing joins the cluster and no job is
registered: the tables are read through the clients that Ray's own command line uses. Their messages are the
same from Ray 2.49 to 2.60, even if the cluster has another version; what an older cluster lacks is named in
`undetermined`. Called with a token and a JSON object: `address` of the GCS, and `limit`, the seconds after
which the results so far are printed.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MOST = 2000
"""The number of entries reported of a table that only grows: finished jobs, ended actors, removed groups."""

PLACE = ("RANK", "WORLD_SIZE", "WG_PREFIX")
"""The variables reported of an actor's `runtime_env`: its place in a process group. Others may be secrets."""

COLOCATED = ".WorkerDict"
"""The suffix of the class in which verl has several roles share a process (`create_colocated_worker_cls`)."""

# A method of verl's Worker. A WorkerDict has it once for each role, with the prefix ROLE_.
_OF_EVERY_ROLE = "_execute_func_rank_zero"


class Result:
    """The result, part by part. Printed once: by the reader at its end, or by the timer."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.parts: dict[str, Any] = {"undetermined": []}
        self._lock = threading.Lock()

    def add(self, part: str, read: Callable[[], Any]) -> None:
        """Read one part. An error is recorded for that part alone."""
        try:
            found = read()
        except Exception as error:  # noqa: BLE001 - whatever another version of Ray raises
            found = None
            self.parts["undetermined"].append(f"{part}: {type(error).__name__}: {str(error)[:200]}")
        self.parts[part] = found

    def end(self, why: str = "") -> None:
        """Print the result after the token, which other output cannot contain, and stop.

        Ray's own threads may hang.
        """
        with self._lock:
            if why:
                self.parts["undetermined"].append(why)
            sys.stdout.write(f"\n{self.token}{json.dumps(dict(self.parts))}\n")
            sys.stdout.flush()
            os._exit(0)


def metadata(client: Any, limit: float) -> dict[str, Any]:
    """Return the versions of the cluster, and whether a driver's `ray.init` started it."""
    text = client.internal_kv_get(b"CLUSTER_METADATA", b"cluster", timeout=limit)
    return dict(json.loads(text)) if text else {}


def session(client: Any, limit: float) -> str:
    """Return the cluster's own name, which is also its folder's."""
    return (client.internal_kv_get(b"session_name", b"session", timeout=limit) or b"").decode()


def nodes(client: Any, accessor: Any, limit: float) -> list[dict[str, Any]]:
    """Return all nodes, with their totals and the free part.

    Ray before 2.40 has no such table of free resources here.
    """
    from ray.core.generated import gcs_pb2  # noqa: PLC0415

    free = {}
    for text in accessor.get_all_available_resources():
        resources = gcs_pb2.AvailableResources.FromString(text)
        free[resources.node_id.hex()] = dict(resources.resources_available)
    found = client.get_all_node_info(timeout=limit)
    return [
        _node(node, free.get(node.node_id.hex(), {})) for node in getattr(found, "values", lambda: found)()
    ]


def _node(node: Any, free: dict[str, float]) -> dict[str, Any]:
    resources = dict(node.resources_total)
    alive = node.state == 0  # GcsNodeInfo.GcsNodeState.ALIVE
    death = getattr(node, "death_info", None)
    return {
        "node": node.node_id.hex(),
        "address": node.node_manager_address,
        "host": node.node_manager_hostname,
        "alive": alive,
        "head": bool(getattr(node, "is_head_node", False)) or "node:__internal_head__" in resources,
        "resources": resources,
        "free": free,
        "started": node.start_time_ms / 1000,
        "ended": node.end_time_ms / 1000,
        "end": "" if alive or death is None else word(death, "reason"),
        "died": "" if alive or death is None else death.reason_message[:300],
    }


def jobs(accessor: Any) -> list[dict[str, Any]]:
    """Return all connected drivers, and the last ones that have ended."""
    from ray.core.generated import gcs_pb2  # noqa: PLC0415

    table = accessor.get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    found = [gcs_pb2.JobTableData.FromString(text) for text in table]
    return [
        {
            "job": job.job_id.hex(),
            "namespace": job.config.ray_namespace,
            "address": job.driver_address.ip_address,
            "pid": job.driver_pid,
            "worker": job.driver_address.worker_id.hex(),
            "finished": job.is_dead,
            "started": job.start_time / 1000,
            "ended": job.end_time / 1000,
            "entrypoint": job.entrypoint[:1000],
        }
        for job in latest(found, lambda job: job.is_dead, lambda job: job.end_time)
    ]


def actors(client: Any, accessor: Any, limit: float) -> list[dict[str, Any]]:
    """Return all existing actors, in every namespace, and the last ones that have ended."""
    from ray.core.generated import gcs_pb2  # noqa: PLC0415

    states = gcs_pb2.ActorTableData.ActorState.DESCRIPTOR.values_by_number
    found = [gcs_pb2.ActorTableData.FromString(text) for text in accessor.get_actor_table(None, None)]

    def state(actor: Any) -> str:
        return str(states[actor.state].name)

    kept = latest(found, lambda actor: state(actor) == "DEAD", lambda actor: actor.end_time)
    classes = Classes(client, limit)
    return [{**_actor(actor), "state": state(actor), "roles": classes.roles(actor)} for actor in kept]


def _actor(actor: Any) -> dict[str, Any]:
    place = actor.address
    runs = bool(place.ip_address)
    return {
        "actor": actor.actor_id.hex(),
        "name": actor.name,
        "namespace": actor.ray_namespace,
        "class_name": actor.class_name,
        "detached": actor.is_detached,
        "job": actor.job_id.hex(),
        "node": (getattr(place, "node_id", b"") or getattr(place, "raylet_id", b"")).hex() if runs else "",
        "address": place.ip_address,
        "pid": actor.pid,
        "started": actor.start_time / 1000,
        "ended": actor.end_time / 1000,
        "needs": dict(actor.required_resources),
        "group": identity(getattr(actor, "placement_group_id", b"")),
        "died": died(actor),
        "end": end(actor),
        "worker": identity(place.worker_id),
        "owner": identity(actor.owner_address.worker_id),
        "gpus": gpus(actor),
        "variables": variables(actor),
    }


def gpus(actor: Any) -> list[int]:
    """Return the numbers that Ray gave an actor's GPUs on its node, where 0 is the raylet's first.

    That is the first GPU that the raylet may use.
    """
    return sorted(
        {
            part.index
            for resource in actor.resource_mapping
            if resource.name == "GPU" or resource.name.startswith("GPU_group_")
            for part in resource.resource_ids
        }
    )


def variables(actor: Any) -> dict[str, str]:
    """Return the place in a process group from its `runtime_env`."""
    try:
        given = json.loads(actor.serialized_runtime_env or "{}").get("env_vars") or {}
    except ValueError:
        return {}
    return {name: str(given[name])[:100] for name in PLACE if name in given}


class Classes:
    """The classes of actors as their drivers stored them in the control store, each read once."""

    def __init__(self, client: Any, limit: float) -> None:
        self.client = client
        self.limit = limit
        self._roles: dict[tuple[bytes, str], list[str]] = {}

    def roles(self, actor: Any) -> list[str]:
        """Return the roles that share the process of a `WorkerDict`, by the names of its methods.

        None for any other actor.
        """
        if not actor.class_name.endswith(COLOCATED):
            return []
        about = actor.function_descriptor.python_function_descriptor
        key = actor.job_id, about.function_hash
        if key not in self._roles:
            try:
                self._roles[key] = [
                    name.removesuffix(_OF_EVERY_ROLE)
                    for name in self._methods(actor.job_id, about)
                    if name.endswith(_OF_EVERY_ROLE)
                ]
            except Exception:  # noqa: BLE001 - whatever another version of Ray raises: roles are all that is lost
                self._roles[key] = []
        return self._roles[key]

    def _methods(self, job: bytes, about: Any) -> list[str]:
        from ray._raylet import PythonFunctionDescriptor  # noqa: PLC0415

        names = about.module_name, about.function_name, about.class_name, about.function_hash
        number = PythonFunctionDescriptor(*names).function_id.binary()
        text = self.client.internal_kv_get(
            b":".join((b"ActorClass", job.hex().encode(), number)), b"fun", timeout=self.limit
        )
        return list(json.loads(Plain(io.BytesIO(text)).load()["actor_method_names"])) if text else []


class Plain(pickle.Unpickler):
    """Unpickles only texts and numbers, so no code that a driver pickled runs here."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse. Raises UnpicklingError."""
        raise pickle.UnpicklingError(f"{module}.{name} is not plain")


def death(actor: Any) -> tuple[str, Any]:
    """Return the kind of an actor's end and its details, in Ray's terms, "" if there is none.

    There is none if it has not ended, or Ray gives none.
    """
    cause = getattr(actor, "death_cause", None)
    kind = cause.WhichOneof("context") if cause is not None else None
    return (kind, getattr(cause, kind)) if kind else ("", None)


def died(actor: Any) -> str:
    """Return why an actor has ended, in the first line of Ray's message."""
    kind, context = death(actor)
    message = getattr(context, "error_message", "") or getattr(context, "formatted_exception_string", "")
    return next(iter(str(message).strip().splitlines()), kind)[:300]


def end(actor: Any) -> str:
    """Return a term for how an actor has ended: Ray's own if it has one."""
    kind, context = death(actor)
    if kind == "actor_died_error_context":
        return word(context, "reason")
    return {"oom_context": "OUT_OF_MEMORY", "creation_task_failure_context": "INIT_FAILED"}.get(kind, "")


def groups(accessor: Any) -> list[dict[str, Any]]:
    """Return all existing placement groups, and the last ones that were removed."""
    from ray.core.generated import gcs_pb2  # noqa: PLC0415

    shape = gcs_pb2.PlacementGroupTableData
    states = shape.PlacementGroupState.DESCRIPTOR.values_by_number
    found = [shape.FromString(text) for text in accessor.get_placement_group_table()]

    def state(group: Any) -> str:
        return str(states[group.state].name)

    return [
        {
            "group": group.placement_group_id.hex(),
            "state": state(group),
            "name": group.name,
            "namespace": group.ray_namespace,
            "job": group.creator_job_id.hex(),
            "actor": identity(group.creator_actor_id),
            "detached": group.is_detached,
            "bundles": [dict(bundle.unit_resources) for bundle in group.bundles],
            "nodes": [identity(bundle.node_id) for bundle in group.bundles],
            "strategy": strategy(group),
            "waits_for": word(group.stats, "scheduling_state"),
        }
        for group in latest(found, lambda group: state(group) == "REMOVED", created)
    ]


def created(group: Any) -> float:
    """Return when a placement group was requested, for sorting."""
    return float(getattr(group, "placement_group_creation_timestamp_ms", 0))


def strategy(group: Any) -> str:
    """Return how the bundles are to be placed: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD."""
    from ray.core.generated import common_pb2  # noqa: PLC0415

    return str(common_pb2.PlacementStrategy.Name(group.strategy))


def word(message: Any, name: str) -> str:
    """Return the name of a field's number in Ray's own tables; "" in a version that lacks the field."""
    field = message.DESCRIPTOR.fields_by_name.get(name)
    return str(field.enum_type.values_by_number[getattr(message, name)].name) if field is not None else ""


def identity(number: bytes) -> str:
    """Return an ID in hexadecimal digits, "" for Ray's nil, whose bits are all set."""
    return "" if not number.strip(b"\xff") else number.hex()


def latest(
    found: Iterable[Any], is_over: Callable[[Any], bool], when: Callable[[Any], float]
) -> Iterator[Any]:
    """Yield all that have not ended, and of the others those that ended last."""
    entries = list(found)
    over = sorted((entry for entry in entries if is_over(entry)), key=when)
    dropped = {id(entry) for entry in over[:-MOST]} if len(over) > MOST else set()
    return (entry for entry in entries if id(entry) not in dropped)


def connected(address: str) -> Any:
    """Return a client that reads the tables. Raises ConnectionError if the GCS refuses it."""
    from ray._raylet import GcsClientOptions, GlobalStateAccessor  # noqa: PLC0415

    options = GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    accessor = GlobalStateAccessor(options)
    if not accessor.connect():
        raise ConnectionError("the GCS refused the connection")
    return accessor


def read(report: Result, address: str, limit: float) -> None:
    """Read all tables, the small ones first."""
    from ray._raylet import GcsClient  # noqa: PLC0415

    report.parts["asked"] = True
    try:
        client = GcsClient(address=address)
    except Exception as error:  # noqa: BLE001 - as above
        report.parts["refused"] = f"{type(error).__name__}: {str(error)[:300]}"
        return
    report.add("cluster", lambda: str(client.cluster_id.hex()))
    report.add("metadata", lambda: metadata(client, limit))
    report.add("session", lambda: session(client, limit))
    report.add("accessor", lambda: connected(address))
    accessor = report.parts.pop("accessor")
    if accessor is None:
        return
    report.add("nodes", lambda: nodes(client, accessor, limit))
    report.add("jobs", lambda: jobs(accessor))
    report.add("groups", lambda: groups(accessor))
    report.add("actors", lambda: actors(client, accessor, limit))


def main(token: str, request: dict[str, Any]) -> None:
    """Print the result in time.

    The limit starts after the import of Ray, whose duration does not depend on the GCS.
    """
    import ray  # noqa: F401, PLC0415

    report = Result(token)
    late = f"the GCS did not respond to all requests within {request['limit']:g} s"
    clock = threading.Timer(request["limit"], report.end, (late,))
    clock.daemon = True
    clock.start()
    read(report, request["address"], request["limit"])
    report.end()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
