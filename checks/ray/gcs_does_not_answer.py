"""RAY118: something listens at the cluster's address, and it is no Ray that could be joined."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import a_cluster, finding_its_place, joins, ray_place
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_NAMED = RayAddresses((ray_place(),))
_SILENT = "the GCS did not answer all questions within 4 s"


@check(
    "RAY118",
    phase="ray",
    examples=lambda: [
        Example("a Ray", (_NAMED, joins(a_cluster()))),
        Example("one that wants a token, which is another matter", (_NAMED, joins(a_cluster(token=True, refused="AuthenticationError", silent=True)))),
        Example("not the one that is joined", (_NAMED, RayClusters((a_cluster(refused=_SILENT, silent=True),)))),
        Example("the reader could not be started", (_NAMED, joins(a_cluster(refused="it did not end within 20 s")))),
        Example("a web server", (_NAMED, joins(a_cluster(refused=_SILENT, silent=True))), "answers no question of Ray's"),
    ],
)  # fmt: skip
def gcs_does_not_answer(addresses: RayAddresses, clusters: RayClusters) -> Iterator[Finding]:
    """What listens at the cluster's address is not a Ray that the job could join.

    ## Why it matters

    The port is open, so nothing is refused, and `ray.init()` waits for an answer that does not come. A Redis, a web server or the
    dashboard may have the port; or the GCS hangs: stopped, out of memory, on a disk that is full, or speaking TLS where this shell has
    no RAY_USE_TLS.

    ## How to fix

    Look who listens there, on that machine: `ss -ltnp`. The address is that of the GCS, as `ray start --head` prints it; 8265 is the
    dashboard and 10001 Ray's client. Where it is a GCS, its log is `/tmp/ray/session_latest/logs/gcs_server.out`.
    """
    cluster, place = clusters.chosen, addresses.taken
    if cluster is None or place is None or not cluster.silent or cluster.token:
        return
    yield Finding(
        f"{cluster.address} answers no question of Ray's, and {place.said_by} names it: ray.init() would not get past it",
        Evidence(f"a connection is accepted; then: {cluster.refused}", "the answers of a GCS", place.said_by),
        subject=Subject("cluster", cluster.address),
        location=finding_its_place(place),
        remedy=f"look who listens on port {place.port}: ss -ltnp; "
        + (
            f"if it is no Ray, remove {place.said_by}"
            if place.source == "address file"
            else "the GCS has the address that ray start --head printed"
        ),
    )
