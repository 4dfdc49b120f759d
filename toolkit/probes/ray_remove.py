"""Ends actors and placement groups of a Ray cluster.

Runs under the target's interpreter, with the target's Ray.

It is passed as text, so it needs the standard library and Ray only. Ray ends actors only for a driver, so
this script connects as one, which leaves a finished job in the cluster's table. It ends nothing while another
driver is connected, or in a cluster other than the intended one. Called with a token and a JSON object:
`address` of the GCS, `session`, the cluster's own name, `actors` and `groups`, their IDs in hexadecimal
digits, and `limit` in seconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_NAMESPACE = "verl-doctor"
_PAUSE = 0.05
_DYING = 10.0  # seconds for ended actors and groups to disappear


def print_result(token: str, answer: dict[str, Any]) -> None:
    """Print the result after the token, which other output cannot contain, and stop."""
    sys.stdout.write(f"\n{token}{json.dumps(answer)}\n")
    sys.stdout.flush()
    os._exit(0)


class Cluster:
    """The cluster that this driver is connected to."""

    def __init__(self, address: str) -> None:
        import ray  # noqa: PLC0415
        from ray._raylet import GcsClientOptions, GlobalStateAccessor  # noqa: PLC0415
        from ray.core.generated import gcs_pb2  # noqa: PLC0415

        ray.init(address, namespace=_NAMESPACE, log_to_driver=False, logging_level="ERROR")
        self.ray, self.tables = ray, gcs_pb2
        self.job = ray.get_runtime_context().get_job_id()
        self.accessor = GlobalStateAccessor(
            GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
        )
        if not self.accessor.connect():
            raise ConnectionError("the GCS refused the connection")

    def session(self) -> str:
        """Return the cluster's own name."""
        from ray.experimental.internal_kv import _internal_kv_get  # noqa: PLC0415

        return (_internal_kv_get(b"session_name", namespace=b"session") or b"").decode()

    def others(self) -> list[str]:
        """Return the connected drivers other than this one and Ray's own."""
        table = self.accessor.get_job_table(
            skip_submission_job_info_field=True, skip_is_running_tasks_field=True
        )
        jobs = [self.tables.JobTableData.FromString(text) for text in table]
        return [
            f"job {job.job_id.hex()} (process {job.driver_pid})"
            for job in jobs
            if not job.is_dead
            and job.job_id.hex() != self.job
            and not job.config.ray_namespace.startswith("_ray_internal")
        ]

    def actor(self, identity: str) -> Any:
        """Return the GCS's record of an actor; None if there is none with that ID."""
        from ray._raylet import ActorID  # noqa: PLC0415

        text = self.accessor.get_actor_info(ActorID(bytes.fromhex(identity)))
        return self.tables.ActorTableData.FromString(text) if text else None

    def group(self, identity: str) -> Any:
        """Return the GCS's record of a placement group; None if there is none with that ID."""
        from ray._raylet import PlacementGroupID  # noqa: PLC0415

        text = self.accessor.get_placement_group_info(PlacementGroupID(bytes.fromhex(identity)))
        return self.tables.PlacementGroupTableData.FromString(text) if text else None

    def end_actor(self, identity: str) -> str:
        """End one actor for good. Return why it still exists, "" if it does not."""
        dead = self.tables.ActorTableData.DEAD
        found = self.actor(identity)
        if found is None or found.state == dead:
            return ""
        handle = self.ray.get_actor(found.name, found.ray_namespace)
        if handle._actor_id.hex() != identity:  # noqa: SLF001 - it has no public one
            return "another actor has its name now"
        self.ray.kill(handle, no_restart=True)
        return self._gone(lambda: (actor := self.actor(identity)) is None or actor.state == dead)

    def remove_group(self, identity: str) -> str:
        """Remove one placement group. Return why it still exists, "" if it does not."""
        from ray._raylet import PlacementGroupID  # noqa: PLC0415
        from ray.util.placement_group import PlacementGroup, remove_placement_group  # noqa: PLC0415

        removed = self.tables.PlacementGroupTableData.REMOVED

        def is_gone() -> bool:
            found = self.group(identity)
            return found is None or found.state == removed

        if is_gone():
            return ""
        remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(identity))))
        return self._gone(is_gone)

    def _gone(self, is_gone: Callable[[], bool]) -> str:
        deadline = time.monotonic() + _DYING
        while not is_gone():
            if time.monotonic() > deadline:
                return f"Ray was requested to end it, but has not done so within {_DYING:g} s"
            time.sleep(_PAUSE)
        return ""


def work(request: dict[str, Any]) -> dict[str, Any]:
    """End the given actors and groups one by one. Return for each why it still exists."""
    try:
        cluster = Cluster(request["address"])
        if cluster.session() != request["session"]:
            return {"refused": f"the Ray at {request['address']} is now another cluster: {cluster.session()}"}
    except Exception as error:  # noqa: BLE001 - whatever Ray raises
        return {"refused": f"{type(error).__name__}: {str(error)[:300]}"}
    report = {
        identity: attempt(cluster, end, identity)
        for part, end in (("actors", cluster.end_actor), ("groups", cluster.remove_group))
        for identity in request[part]
    }
    cluster.ray.shutdown()
    return {"told": report}


def attempt(cluster: Cluster, end: Callable[[str], str], identity: str) -> str:
    """End one actor or group, if nothing may need it. Return why it still exists, "" if it does not."""
    try:
        others = cluster.others()
        return f"{others[0]} has connected meanwhile" if others else end(identity)
    except Exception as error:  # noqa: BLE001 - as above
        return f"{type(error).__name__}: {str(error)[:300]}"


def main(token: str, request: dict[str, Any]) -> None:
    """Print the result in time."""
    late = {"refused": f"Ray did not do it within {request['limit']:g} s"}
    clock = threading.Timer(request["limit"], print_result, (token, late))
    clock.daemon = True
    clock.start()
    print_result(token, work(request))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
