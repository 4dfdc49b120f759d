"""RAY101: the address of the cluster that the job is to join leads nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import finding_its_place, other_than, ray_place
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_FOUND = ("address file", "raylet", "ray start --head")
_DEAD = ray_place(reply="refused", error="Connection refused")


@check(
    "RAY101",
    phase="ray",
    examples=lambda: [
        Example("somebody answers", (RayAddresses((ray_place(),)),)),
        Example("nothing is said of a cluster", (RayAddresses(),)),
        Example("the script starts a head there", (RayAddresses((_DEAD, ray_place(source="ray start --head", reply="refused"))),)),
        Example("a program that names another one", (RayAddresses((ray_place(source="ray.init"), _DEAD)),)),
        Example("ray job submit is told where to submit", (RayAddresses((_DEAD,), submitted=True),)),
        Example("a dead port", (RayAddresses((_DEAD,)),), "nothing listens at 10.0.0.5:6379"),
        Example("a firewall", (RayAddresses((ray_place(reply="silence"),)),), "10.0.0.5:6379 does not answer"),
        Example("no route", (RayAddresses((ray_place(reply="no route", error="No route to host"),)),), "No route to host"),
        Example("a name that nobody knows", (RayAddresses((ray_place("haed:6379", reply="no such name"),)),), "haed does not resolve"),
        Example("where the script joins", (RayAddresses((ray_place(source="ray start --address", reply="refused", path="run.sh", line=4),)),), "ray start --address names it"),
        Example("in the command", (RayAddresses((ray_place(source="ray.init", reply="refused", path="run.sh", line=7),)),), "Ray would try it again"),
    ],
)  # fmt: skip
def ray_address_leads_nowhere(addresses: RayAddresses) -> Iterator[Finding]:
    """The address of the cluster that the job is to join leads nowhere.

    ## Why it matters

    Ray tries the address again and again, for ever: `ray.init()` prints one warning about every 40 seconds (`Failed to connect to GCS
    at address ...`) and never returns. verl says nothing at all.

    ## How to fix

    `unset RAY_ADDRESS` if it is that of an earlier cluster. Else start the head first, and give the job the address that its `ray
    start --head` printed. A firewall must let through the port of the GCS (6379 unless `--port` says otherwise).
    """
    place = addresses.taken
    if place is None or place.source in _FOUND or not place.trouble:
        return
    if addresses.head is not None and addresses.head.port == place.port:
        return
    yield Finding(
        f"{place.trouble}, and {place.said_by} names it: Ray would try it again forever",
        Evidence(
            f"{place.said_by}: {place.text}", "an address at which a Ray answers", place.error or place.reply
        ),
        subject=Subject("address", place.address or place.text),
        location=finding_its_place(place),
        remedy=other_than(place, addresses),
        fix="ray-address-removed" if place.source == "RAY_ADDRESS" else None,
    )
