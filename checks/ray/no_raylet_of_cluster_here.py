"""RAY108: the cluster that the job would join has no node on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.ray import MINE, a_cluster, a_node, finding_its_place, joins, ray_place
from verl_doctor.toolkit.collectors.network.network import Interface, Network, Resolved
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_NETWORK = Network(
    host=Resolved(name="node1", addresses=("10.0.0.5",)),
    interfaces=(Interface(name="eth0", kind="ethernet", up=True, addresses=("10.0.0.5",)),),
    default="eth0",
)
_SEEN = Processes()
_AWAY = joins(a_cluster(a_node(address="10.0.0.9")))
_HERE = joins(a_cluster())


def _examples() -> list[Example]:
    return [
        Example(
            "a raylet of the cluster runs here",
            (RayAddresses(places=(ray_place(),), running=(MINE,)), _HERE, _NETWORK, _SEEN),
        ),
        Example(
            "recognised by its session",
            (
                RayAddresses(places=(ray_place(),), running=(replace(MINE, address="head:6379"),)),
                _HERE,
                _NETWORK,
                _SEEN,
            ),
        ),
        Example("nothing is joined", (RayAddresses(), RayClusters((a_cluster(),)), _NETWORK, _SEEN)),
        Example(
            "only verl-doctor connects to it",
            (RayAddresses((ray_place(source="--ray-address"),)), _AWAY, _NETWORK, _SEEN),
        ),
        Example(
            "through Ray's client, which needs none",
            (
                RayAddresses((ray_place("ray://10.0.0.9:10001"),)),
                RayClusters(clusters=(), joined="10.0.0.9:10001"),
                _NETWORK,
                _SEEN,
            ),
        ),
        Example(
            "a script that joins the cluster first",
            (RayAddresses((ray_place(), ray_place(source="ray start --address"))), _AWAY, _NETWORK, _SEEN),
        ),
        Example(
            "a login node",
            (RayAddresses((ray_place("10.0.0.9:6379"),)), _AWAY, _NETWORK, _SEEN),
            "has no node on this machine",
        ),
        Example(
            "a container with the host's network",
            (RayAddresses((ray_place(),)), _HERE, _NETWORK, _SEEN),
            "its processes are not visible from here",
        ),
    ]


@check("RAY108", phase="ray", examples=_examples)
def no_raylet_of_cluster_here(
    addresses: RayAddresses, clusters: RayClusters, network: Network, processes: Processes
) -> Iterator[Finding]:
    """The cluster that the job would join has no node on this machine.

    ## Why it matters

    A driver needs a raylet of the cluster on its machine, whose files and sockets it uses. Without one
    `ray.init()` waits for a minute, then fails: `ConnectionError: Failed to connect to Ray cluster at ...`,
    caused by `No node info found matching attributes: ''`. If the address is this machine's own, the Ray of
    another container or user has the port (containers on the host's network share all ports), and the job
    would not run there either.

    ## How to fix

    Join first with `ray start --address=`, or start the job on a node of the cluster (`ray job submit`). If
    the Ray is not yours, `unset RAY_ADDRESS` and start your own with another `--port` and RAY_TMPDIR.
    """
    cluster, taken = clusters.chosen, addresses.taken
    if cluster is None or taken is None or taken.source == "--ray-address" or cluster.refused:
        return
    sessions = {ray.session for ray in addresses.running if ray.raylets}
    known = {ray.address for ray in addresses.running if ray.raylets}
    if cluster.session in sessions or known & {cluster.address, *cluster.also}:
        return
    if addresses.of("ray start --address") is not None or addresses.of("ray start --head") is not None:
        return
    here = [node for node in cluster.alive if network.owner_of(node.address) is not None]
    what = (
        (
            "reports a node on this machine, but its processes are not visible from here, because it runs "
            "in another container"
        )
        if here
        else "has no node on this machine"
    )
    yield Finding(
        f"the Ray at {cluster.address} {what}: a driver cannot join it from here",
        Evidence(
            (
                f"nodes {', '.join(node.address for node in cluster.alive[:4])}; here run "
                f"{len(addresses.running)} Rays"
            ),
            "a raylet of that cluster on this machine",
            f"the GCS at {cluster.address}, the process table ({len(processes.running)} of jobs)",
        ),
        subject=Subject("cluster", cluster.address),
        location=finding_its_place(taken),
        remedy="unset RAY_ADDRESS and start your own Ray with another --port"
        if here
        else f"run ray start --address={cluster.address}, or start the job on one of its nodes",
    )
