"""RAY118: what listens at the cluster's address is not a Ray that the job could join."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import a_cluster, finding_its_place, joins, ray_place
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_NAMED = RayAddresses((ray_place(),))
_SILENT = "the GCS did not answer all requests within 4 s"


def _examples() -> list[Example]:
    return [
        Example("a Ray", (_NAMED, joins(a_cluster()))),
        Example(
            "a GCS that requires a token, which RAY106 reports",
            (_NAMED, joins(a_cluster(token=True, refused="AuthenticationError", silent=True))),
        ),
        Example(
            "a GCS that the job does not join",
            (_NAMED, RayClusters((a_cluster(refused=_SILENT, silent=True),))),
        ),
        Example(
            "the reader could not be started",
            (_NAMED, joins(a_cluster(refused="it did not finish within 20 s"))),
        ),
        Example(
            "a web server",
            (_NAMED, joins(a_cluster(refused=_SILENT, silent=True))),
            "does not answer like a Ray",
        ),
    ]


@check("RAY118", phase="ray", examples=_examples)
def gcs_does_not_answer(addresses: RayAddresses, clusters: RayClusters) -> Iterator[Finding]:
    """What listens at the cluster's address is not a Ray that the job could join.

    ## Why it matters

    The port is open, so the connection is not refused, and `ray.init()` waits for a response that never
    comes. A Redis, a web server or the dashboard may occupy the port; or the GCS hangs: it is stopped, out of
    memory, on a full disk, or uses TLS while this shell has no RAY_USE_TLS.

    ## How to fix

    On that machine, find out what listens there: `ss -ltnp`. The address must be that of the GCS, as `ray
    start --head` prints it; 8265 is the dashboard and 10001 Ray's client. If it is a GCS, read its log,
    `/tmp/ray/session_latest/logs/gcs_server.out`.
    """
    cluster, place = clusters.chosen, addresses.taken
    if cluster is None or place is None or not cluster.silent or cluster.token:
        return
    yield Finding(
        (
            f"{cluster.address}, set by {place.given_by}, does not answer like a Ray: ray.init() would hang "
            "or fail"
        ),
        Evidence(
            f"the connection is accepted; then: {cluster.refused}", "a GCS that answers", place.given_by
        ),
        subject=Subject("cluster", cluster.address),
        location=finding_its_place(place),
        remedy=f"find out what listens on port {place.port}: ss -ltnp; "
        + (
            f"if it is not Ray, remove {place.given_by}"
            if place.source == "address file"
            else "the GCS has the address that ray start --head printed"
        ),
    )
