"""Which nodes are asked for their facts, and how: through Ray, or by ssh or srun where Ray itself is what is broken."""

from __future__ import annotations

from collections.abc import Callable, Generator

from verl_doctor.toolkit.cluster_hosts import host_answers, shown
from verl_doctor.toolkit.cluster_nodes import RayDriver, node_answers
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_ray_clusters import RayCluster, RayClusters
from verl_doctor.toolkit.fact_ray_token import RayToken
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.node_answer import NodeAnswer
from verl_doctor.toolkit.node_parcel import parcel_for
from verl_doctor.toolkit.node_request import AskedNodes, CouldNotAsk
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.text import counted

_OTHERWISE = "without Ray: --nodes HOSTS --via ssh, or the facts files of the nodes with --facts"


def answers(
    nodes: AskedNodes,
    run: Session,
    collection: Collection,
    say: Callable[[str], None],
    watch: Callable[[str], None],
) -> Generator[NodeAnswer, None, None]:
    """Every node, as soon as it answers or it is known that it does not. `say` is told what is about to be done.

    Raises CouldNotAsk when there is no cluster to be asked.
    """
    interpreter = collection.get(Interpreter)
    if isinstance(interpreter, Unknown):
        raise CouldNotAsk(interpreter.reason)
    parcel = parcel_for(run.registry, collection, run.target, run.config.marker)
    if nodes.hosts:
        count = counted(len(nodes.hosts), "node")
        say(f"asks {count}: {shown(nodes.via, interpreter.executable)}")
        yield from host_answers(
            run.machine, nodes.hosts, nodes.via, interpreter.executable, parcel, nodes.budget, watch
        )
        return
    cluster = _cluster(run, collection)
    alive = counted(len(cluster.alive), "node")
    say(
        f"asks {alive} of the Ray cluster at {cluster.address}: this starts a job in it, which ends with the check"
    )
    driver = RayDriver(interpreter.executable, cluster.address, _variables(cluster, collection))
    try:
        yield from node_answers(run.machine, driver, parcel, nodes.budget, watch)
    except CouldNotAsk as error:
        raise CouldNotAsk(
            f"the Ray cluster at {cluster.address} lets nobody in: {error}; {_OTHERWISE}"
        ) from None


def _cluster(run: Session, collection: Collection) -> RayCluster:
    """The cluster that a job started from here would join, or else the only one that answers."""
    clusters = collection.get(RayClusters)
    if isinstance(clusters, Unknown):
        raise CouldNotAsk(
            f"there is no Ray cluster to ask: {clusters.reason}; name one with --ray-address, or {_OTHERWISE}"
        )
    found = clusters.chosen
    if found is None and run.target.ray_address:
        raise CouldNotAsk(f"no Ray cluster answers at {run.target.ray_address}; {_OTHERWISE}")
    if found is None and len(clusters.clusters) == 1:
        found = clusters.clusters[0]
    if found is None:
        addresses = ", ".join(one.address for one in clusters.clusters)
        raise CouldNotAsk(f"several Ray clusters answer: {addresses}; choose with --ray-address")
    if found.refused and not found.nodes:
        raise CouldNotAsk(f"the Ray cluster at {found.address} cannot be read: {found.refused}; {_OTHERWISE}")
    return found


def _variables(cluster: RayCluster, collection: Collection) -> dict[str, str]:
    """What Ray needs to know of the cluster's token: whether there is one, and the file; it is not read here."""
    token = collection.get(RayToken)
    if not cluster.token or isinstance(token, Unknown):
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", **({"RAY_AUTH_TOKEN_PATH": token.path} if token.path else {})}
