"""RAY107: several Rays run on this machine, and which one a job joins depends on which was started last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.ray import MINE, ray_place
from verl_doctor.toolkit.collectors.ray.addresses import LocalRay, RayAddresses
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_OTHER = LocalRay(
    address="10.0.0.5:7777", session="session_2026-11-21_11-00-00_000000_99", raylets=(99,), gcs=98, user="me"
)
_MOST = 4
_FILE = ray_place(source="address file")
_PLACES = (_FILE, ray_place(source="raylet"), ray_place("10.0.0.5:7777", "raylet"))


def _examples() -> list[Example]:
    return [
        Example("a single Ray", (RayAddresses(places=(_FILE,), running=(MINE,)),)),
        Example(
            "a single Ray with two raylets",
            (RayAddresses(places=(_FILE,), running=(replace(MINE, raylets=(77, 78)),)),),
        ),
        Example(
            "the address is named", (RayAddresses(places=(ray_place(), *_PLACES), running=(MINE, _OTHER)),)
        ),
        Example(
            "the other is another user's",
            (RayAddresses(places=_PLACES, running=(MINE, replace(_OTHER, mine=False))),),
        ),
        Example(
            "the Ray to join has stopped, which RAY102 reports",
            (
                RayAddresses(
                    places=(ray_place(source="address file", reply="refused"),), running=(MINE, _OTHER)
                ),
            ),
        ),
        Example(
            "jobs that each have their own Ray, and the next one starts a third",
            (RayAddresses(places=_PLACES[1:], running=(MINE, _OTHER)),),
        ),
        Example(
            "two clusters",
            (RayAddresses(places=_PLACES, running=(MINE, _OTHER)),),
            "2 Rays of yours run on this machine; a job joins the one at 10.0.0.5:6379",
        ),
    ]


@check("RAY107", severity="warning", examples=_examples)
def several_rays_here(addresses: RayAddresses) -> Iterator[Finding]:
    """Several Ray clusters run on this machine, and a job joins whichever was started last.

    ## Why it matters

    `ray.init()` without an address joins the Ray whose head was started here last: it overwrote the other's
    address (`ray_current_cluster`), and `session_latest` points to its logs. Two drivers, or a driver and the
    engine that it starts, end up in two clusters: `has 0 actors`, missing GPUs, or two Rays that assign the
    same GPU. `ray stop` stops both.

    ## How to fix

    Run `export RAY_ADDRESS=` with the intended one, for the job and everything it starts. Stop the other if
    nothing needs it; the finding lists both.
    """
    yours = [ray for ray in addresses.running if ray.raylets and ray.mine]
    taken = addresses.taken
    if len(yours) < 2 or taken is None or taken.source not in ("address file", "raylet"):
        return
    if taken.reply != "connected":
        return
    yield Finding(
        (
            f"{len(yours)} Rays of yours run on this machine; a job joins the one at {taken.address} unless "
            "it has another address"
        ),
        Evidence(
            listed((f"{ray.address} (raylet {ray.raylets[0]}, {ray.session})" for ray in yours), _MOST),
            "one, or RAY_ADDRESS with the intended one",
            f"the command lines of the raylets, {taken.given_by}",
        ),
        subject=Subject("cluster", taken.address),
        remedy=f"export RAY_ADDRESS={taken.address}, if that is the intended one",
    )
