"""RAY101: no Ray answers at the address that the job is to join."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import finding_its_place, other_than, ray_place
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_FOUND = ("address file", "raylet", "ray start --head")
_DEAD = ray_place(reply="refused", error="Connection refused")


def _examples() -> list[Example]:
    return [
        Example("a Ray answers", (RayAddresses((ray_place(),)),)),
        Example("no address is set", (RayAddresses(),)),
        Example(
            "the script starts a head there",
            (RayAddresses((_DEAD, ray_place(source="ray start --head", reply="refused"))),),
        ),
        Example("a program with another address", (RayAddresses((ray_place(source="ray.init"), _DEAD)),)),
        Example("an address for ray job submit", (RayAddresses((_DEAD,), submitted=True),)),
        Example("a dead port", (RayAddresses((_DEAD,)),), "nothing listens on 10.0.0.5:6379"),
        Example(
            "a firewall", (RayAddresses((ray_place(reply="silence"),)),), "10.0.0.5:6379 does not respond"
        ),
        Example(
            "no route",
            (RayAddresses((ray_place(reply="no route", error="No route to host"),)),),
            "No route to host",
        ),
        Example(
            "an unknown name",
            (RayAddresses((ray_place("haed:6379", reply="no such name"),)),),
            "haed does not resolve",
        ),
        Example(
            "where the script joins",
            (
                RayAddresses(
                    (ray_place(source="ray start --address", reply="refused", path="run.sh", line=4),)
                ),
            ),
            "set by ray start --address",
        ),
        Example(
            "in the command",
            (RayAddresses((ray_place(source="ray.init", reply="refused", path="run.sh", line=7),)),),
            "Ray would retry forever",
        ),
    ]


@check("RAY101", phase="ray", examples=_examples)
def ray_address_leads_nowhere(addresses: RayAddresses) -> Iterator[Finding]:
    """No Ray answers at the address that the job is to join.

    ## Why it matters

    Ray retries the address forever: `ray.init()` prints a warning about every 40 seconds (`Failed to connect
    to GCS at address ...`) and never returns. verl prints nothing at all.

    ## How to fix

    Run `unset RAY_ADDRESS` if the address belongs to an earlier cluster. Otherwise start the head first, and
    give the job the address that its `ray start --head` prints. A firewall must allow the port of the GCS
    (6379 unless `--port` sets another).
    """
    place = addresses.taken
    if place is None or place.source in _FOUND or not place.trouble:
        return
    if addresses.head is not None and addresses.head.port == place.port:
        return
    yield Finding(
        f"{place.trouble} (set by {place.given_by}): Ray would retry forever",
        Evidence(
            f"{place.given_by}: {place.text}", "the address of a running Ray", place.error or place.reply
        ),
        subject=Subject("address", place.address or place.text),
        location=finding_its_place(place),
        remedy=other_than(place, addresses),
        fix="ray-address-removed" if place.source == "RAY_ADDRESS" else None,
    )
