"""RAY110: another Ray occupies the port on which the launch script starts its head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.ray import MINE, a_cluster, finding_its_place, ray_place
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_HEAD = ray_place(source="ray start --head", path="run.sh", line=4)
_THERE = RayClusters((a_cluster(),))
_SCRIPT = Launch((("run.sh", "shell script"),))
_STOPS = replace(_SCRIPT, stops_ray=True)
_FILE = ray_place(source="address file")


def _examples() -> list[Example]:
    return [
        Example("a free port", (RayAddresses((replace(_HEAD, reply="refused"),)), RayClusters(), _SCRIPT)),
        Example(
            "another program has the port",
            (RayAddresses((_HEAD,)), RayClusters((a_cluster(refused="no GCS", cluster=""),)), _SCRIPT),
        ),
        Example(
            "the script stops that Ray first",
            (RayAddresses(places=(_HEAD,), running=(MINE,)), _THERE, _STOPS),
        ),
        Example(
            "a Ray of yours",
            (RayAddresses(places=(_FILE, _HEAD), running=(MINE,)), _THERE, _SCRIPT),
            "is already running at",
        ),
        Example(
            "a Ray of yours, from another folder",
            (RayAddresses(places=(_HEAD,), running=(MINE,)), _THERE, _SCRIPT),
            "does not match persisted value",
        ),
        Example(
            "another user's Ray, which ray stop does not end",
            (RayAddresses(places=(_HEAD,), running=(replace(MINE, mine=False, user="eve"),)), _THERE, _STOPS),
            "a Ray of eve occupies 10.0.0.5:6379",
        ),
        Example(
            "another container's",
            (RayAddresses((_HEAD,)), _THERE, _STOPS),
            "whose processes are not visible from here",
        ),
    ]


@check("RAY110", phase="ray", examples=_examples)
def port_of_another_ray(addresses: RayAddresses, clusters: RayClusters, launch: Launch) -> Iterator[Finding]:
    """Another Ray occupies the port on which the launch script starts its head.

    ## Why it matters

    `ray start --head` starts its processes, talks to the GCS that has the port, and finds that it belongs to
    another cluster: `AssertionError: Session name session_... does not match persisted value b'session_...'.
    Perhaps there was an error connecting to ...`. The storage that this message blames is fine. Containers on
    the host's network share all ports, and 6379 is everybody's default.

    ## How to fix

    Give the head another `--port` and its own folder (RAY_TMPDIR), and pass its address to the other nodes.
    Or stop the Ray that has the port, if it is yours and nothing needs it.
    """
    head = addresses.head
    cluster = clusters.at(head.address) if head is not None else None
    if head is None or cluster is None or not (cluster.cluster or cluster.token):
        return
    ray = addresses.ray_at(head.address)
    if ray is not None and ray.mine and launch.stops_ray:
        return
    file = addresses.of("address file")
    whose = (
        "another Ray, whose processes are not visible from here," if ray is None else f"a Ray of {ray.user}"
    )
    complaint = (
        f"'Ray is trying to start at {head.address}, but is already running at {head.address}'"
        if ray is not None and file is not None and file.address == head.address
        else "'Session name ... does not match persisted value'"
    )
    yield Finding(
        (
            f"{whose} occupies {head.address}, where the script starts its head, which would stop with "
            f"{complaint}"
        ),
        Evidence(
            f"{cluster.session or 'a Ray that requires a token'} at {head.address}",
            "a free port",
            f"the GCS at {head.address}",
        ),
        subject=Subject("address", head.address),
        location=finding_its_place(head),
        remedy="run ray start --head with another --port= and its own RAY_TMPDIR"
        + ("; or run ray stop if nothing needs the running Ray" if ray is not None and ray.mine else ""),
    )
