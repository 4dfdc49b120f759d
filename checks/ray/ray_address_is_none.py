"""RAY109: RAY_ADDRESS has a value that does not work as intended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from verl_doctor.checks.shared.corrections import healed, variable
from verl_doctor.checks.shared.network_examples import ONE, TWO
from verl_doctor.checks.shared.ray import MINE, finding_its_place, live, ray_place
from verl_doctor.toolkit.collectors.ray.addresses import UNDETERMINED, Place, RayAddresses
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Severity, Subject, check

_VARIABLE: Literal["RAY_ADDRESS"] = "RAY_ADDRESS"
_STARTS = ray_place(source="ray start --head", reply="refused")


def _examples() -> list[Example]:
    return [
        Example("host and port", (RayAddresses((ray_place(),)), ONE)),
        Example(
            "auto, and a Ray is running", (RayAddresses((ray_place("auto"), ray_place(source="raylet"))), ONE)
        ),
        Example("auto, and the script starts one", (RayAddresses((ray_place("auto"), _STARTS)), ONE)),
        Example("local, and one node", (RayAddresses((ray_place("local"),)), ONE)),
        Example(
            "a value known only at run time",
            (RayAddresses((ray_place(UNDETERMINED, host="", path="run.sh"),)), ONE),
        ),
        Example("Ray's client", (RayAddresses((ray_place("ray://10.0.0.5:10001"),)), ONE)),
        Example(
            "the address for ray job submit",
            (RayAddresses((ray_place("http://10.0.0.5:8265"),), submitted=True), ONE),
        ),
        Example(
            "auto, and no Ray is running",
            (RayAddresses((ray_place("auto"),)), ONE),
            "it finds no running Ray here",
        ),
        Example(
            "local, and two nodes",
            (RayAddresses((ray_place("local"),)), TWO),
            "starts a Ray on this machine alone",
        ),
        Example(
            "local, and a Ray is running",
            (
                RayAddresses(places=(ray_place("local"), ray_place(source="address file")), running=(MINE,)),
                ONE,
            ),
            "ignores the Ray at 10.0.0.5:6379",
        ),
        Example(
            "the dashboard",
            (RayAddresses((ray_place("http://10.0.0.5:8265"),)), ONE),
            "is the address of a web service",
        ),
        Example("no port", (RayAddresses((ray_place("10.0.0.5"),)), ONE), "has no port"),
    ]


@check("RAY109", phase="ray", examples=_examples)
def ray_address_is_none(addresses: RayAddresses, nodes: JobNodes) -> Iterator[Finding]:
    """RAY_ADDRESS has a value that does not work as intended.

    ## Why it matters

    It applies to every `ray.init()` without an explicit address. `auto` never starts a Ray: `ConnectionError:
    Could not find any running Ray instance`. `local` always starts one on this machine alone, even beside a
    running cluster. `http://...:8265` is meant for `ray job submit`; `ray.init()` stops with `ValueError:
    Invalid Ray address`. Without a port it is `Invalid address format`.

    ## How to fix

    Run `export RAY_ADDRESS=` with the head's host and port, as `ray start --head` prints them, or unset it.
    """
    place = addresses.of(_VARIABLE)
    chosen = addresses.of("ray.init")
    if place is None or addresses.submitted or (chosen is not None and chosen.text != "auto"):
        return
    why, severity = _wrong(place, addresses, nodes)
    if why:
        here = live(addresses)
        yield Finding(
            f"{place.given_by} is {place.text!r}: {why}",
            Evidence(f"RAY_ADDRESS={place.text}", "host:port of a Ray head, or nothing", place.given_by),
            subject=Subject("variable", _VARIABLE),
            location=finding_its_place(place),
            remedy=f"export RAY_ADDRESS={here}, or unset it" if here else "unset RAY_ADDRESS",
            severity=severity,
            **healed("RAY109", _correction(place) if severity is None and not here else None),
        )


def _correction(place: Place) -> Correction | None:
    """No address, where a file sets one and no Ray of one's own runs here."""
    effect = "the job starts its own Ray, on this machine only"
    return variable(_VARIABLE, place.text, finding_its_place(place), None, effect=effect)


def _wrong(place: Place, addresses: RayAddresses, nodes: JobNodes) -> tuple[str, Severity | None]:
    """What is wrong with the value, and its severity; "" if nothing is."""
    text = place.text
    if text == UNDETERMINED:
        return "", None
    if text == "auto":
        nothing = addresses.taken is None
        return ("it finds no running Ray here and does not start one" if nothing else ""), None
    if text == "local":
        if nodes.several:
            return f"it starts a Ray on this machine alone, and {nodes.several}", None
        joined = next(
            (local_ray.address for local_ray in addresses.running if local_ray.mine and local_ray.address), ""
        )
        return (f"it ignores the Ray at {joined} and starts another" if joined else ""), "warning"
    if text.startswith(("http://", "https://")):
        return "it is the address of a web service, which ray.init() refuses", None
    if not place.address and "://" not in text:
        return "it has no port" if place.host else "it is not an address", None
    return "", None
