"""RAY114: the Ray that the job would join belongs to another user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.ray import MINE, finding_its_place, ray_place
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_NOT_JOINED = ("--ray-address", "ray start --head")
_ANOTHER_USERS = replace(MINE, mine=False, user="eve")


def _examples() -> list[Example]:
    return [
        Example(
            "a Ray of yours", (RayAddresses(places=(ray_place(source="address file"),), running=(MINE,)),)
        ),
        Example("another user's that is not joined", (RayAddresses(running=(_ANOTHER_USERS,)),)),
        Example(
            "where the script starts its own, which RAY110 reports",
            (RayAddresses(places=(ray_place(source="ray start --head"),), running=(_ANOTHER_USERS,)),),
        ),
        Example("of another machine", (RayAddresses(places=(ray_place("10.0.0.9:6379"),), running=(MINE,)),)),
        Example(
            "found in the shared folder",
            (RayAddresses(places=(ray_place(source="address file"),), running=(_ANOTHER_USERS,)),),
            "the Ray of eve at 10.0.0.5:6379",
        ),
        Example(
            "named, so perhaps intended",
            (RayAddresses(places=(ray_place(),), running=(_ANOTHER_USERS,)),),
            "actors would run as eve",
        ),
    ]


@check("RAY114", phase="ray", severity="error", examples=_examples)
def cluster_of_another_user(addresses: RayAddresses) -> Iterator[Finding]:
    """The Ray that the job would join belongs to another user.

    ## Why it matters

    On a shared machine everybody's Ray writes its address to `/tmp/ray/ray_current_cluster`, and `ray.init()`
    joins the one that wrote last. Actors then run as that user, with that user's environment and permissions,
    on that user's GPUs, and the files they write belong to that user.

    ## How to fix

    Use a folder of your own: `export RAY_TMPDIR=/tmp/ray-$USER` before `ray start` and for the job. For a Ray
    that several users share, set RAY_ADDRESS.
    """
    place = addresses.taken
    ray = addresses.ray_at(place.address) if place is not None and place.address else None
    if place is None or ray is None or ray.mine or place.source in _NOT_JOINED:
        return
    named = place.source not in ("address file", "raylet")
    yield Finding(
        f"the job would join the Ray of {ray.user} at {place.address}: its actors would run as {ray.user}",
        Evidence(
            (
                f"{place.given_by} names it; its processes are {ray.user}'s (raylet "
                f"{', '.join(map(str, ray.raylets))})"
            ),
            "a Ray of this user",
            "the process table",
        ),
        subject=Subject("cluster", place.address),
        location=finding_its_place(place),
        remedy=(
            f"unless you mean to use that Ray: {'unset RAY_ADDRESS; ' if named else ''}export "
            "RAY_TMPDIR=/tmp/ray-$USER"
        ),
        severity="warning" if named else None,
    )
