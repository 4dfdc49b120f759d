"""Selects which nodes are queried, and how: through Ray, or by ssh or srun if Ray itself is broken."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.cluster.node_parcel import Parcel, parcel_for
from verl_doctor.toolkit.cluster.node_request import ALONE, CouldNotQuery, RequestedNodes, Sharing
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.through_ray import RayDriver, node_responses
from verl_doctor.toolkit.cluster.through_ssh import host_responses, shown
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.token import RayToken
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.examination import Watch
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.text import counted

Query = Callable[..., Generator[NodeResponse, None, None]]

_LONGEST = 20.0  # seconds for the facts of one node, a third of the usual budget
_OTHERWISE = "without Ray: --nodes HOSTS --via ssh, or the facts files of the nodes with --facts"


@dataclass(frozen=True)
class Way:
    """A way to reach the nodes, with its `description`.

    `query` sends a parcel to all nodes, or to those of the responses in `only`. It may allow each node
    `longest` seconds, even beyond the budget. Of nodes that share something, it queries no more at a time
    than `sharing` allows.
    """

    description: str
    query: Query


def responses(
    way: Way, run: Session, collection: Collection, watch: Watch
) -> Generator[NodeResponse, None, None]:
    """Yield the facts of each node as soon as it has responded or failed."""
    return way.query(parcel_for(run, collection), watch=watch)


def way_to(nodes: RequestedNodes, run: Session, collection: Collection) -> Way:
    """Return the way to reach these nodes. Raises CouldNotQuery if there is none."""
    interpreter = collection.get(Interpreter)
    if isinstance(interpreter, Unknown):
        raise CouldNotQuery(interpreter.reason)
    python = interpreter.executable
    if nodes.hosts:
        return _by_command(nodes, run, python)
    cluster = _cluster(run, collection)
    return _through_ray(
        nodes, run, cluster, RayDriver(python, cluster.address, _variables(cluster, collection))
    )


def _by_command(nodes: RequestedNodes, run: Session, python: str) -> Way:
    def query(
        parcel: Parcel,
        only: Sequence[NodeResponse] = (),
        watch: Watch = _no_progress,
        longest: float | None = None,
        sharing: Sharing = ALONE,
    ) -> Generator[NodeResponse, None, None]:
        hosts = [response.node for response in only] or nodes.hosts
        budget, _ = _time(nodes, longest)
        return host_responses(run.machine, hosts, nodes.via, python, parcel, budget, watch, sharing=sharing)

    return Way(f"queries {counted(len(nodes.hosts), 'node')}: {shown(nodes.via, python)}", query)


def _through_ray(nodes: RequestedNodes, run: Session, cluster: RayCluster, driver: RayDriver) -> Way:
    def query(
        parcel: Parcel,
        only: Sequence[NodeResponse] = (),
        watch: Watch = _no_progress,
        longest: float | None = None,
        sharing: Sharing = ALONE,
    ) -> Generator[NodeResponse, None, None]:
        numbers = frozenset(response.number for response in only)
        budget, each = _time(nodes, longest)
        try:
            yield from node_responses(
                run.machine, driver, parcel, budget, watch, only=numbers, longest=each, sharing=sharing
            )
        except CouldNotQuery as error:
            raise CouldNotQuery(
                f"the Ray cluster at {cluster.address} refuses the connection: {error}; {_OTHERWISE}"
            ) from None

    alive = counted(len(cluster.alive), "node")
    job = "this starts a job in it, which ends with the check"
    return Way(f"queries {alive} of the Ray cluster at {cluster.address}: {job}", query)


def _time(nodes: RequestedNodes, longest: float | None) -> tuple[float, float]:
    """Return the seconds for all nodes and for each; a larger total allows each node more.

    Work that may take `longest` gets that.
    """
    if longest is None:
        return nodes.budget, max(_LONGEST, nodes.budget / 3)
    return max(nodes.budget, longest), longest


def _cluster(run: Session, collection: Collection) -> RayCluster:
    """Return the cluster that a job started here would join, otherwise the only one that responds."""
    clusters = collection.get(RayClusters)
    if isinstance(clusters, Unknown):
        raise CouldNotQuery(
            f"no Ray cluster to query: {clusters.reason}; name one with --ray-address, or {_OTHERWISE}"
        )
    found = clusters.chosen
    if found is None and run.target.ray_address:
        raise CouldNotQuery(f"no Ray cluster responds at {run.target.ray_address}; {_OTHERWISE}")
    if found is None and len(clusters.clusters) == 1:
        found = clusters.clusters[0]
    if found is None:
        addresses = ", ".join(cluster.address for cluster in clusters.clusters)
        raise CouldNotQuery(f"several Ray clusters respond: {addresses}; choose one with --ray-address")
    if found.refused and not found.nodes:
        raise CouldNotQuery(
            f"the Ray cluster at {found.address} cannot be read: {found.refused}; {_OTHERWISE}"
        )
    return found


def _variables(cluster: RayCluster, collection: Collection) -> dict[str, str]:
    """Return the variables for the cluster's token: if there is one, and its file, which is not read here."""
    token = collection.get(RayToken)
    if not cluster.token or isinstance(token, Unknown):
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", **({"RAY_AUTH_TOKEN_PATH": token.path} if token.path else {})}


def _no_progress(_: str) -> None:
    """Ignore progress."""
