"""NET116: nothing answers at the configured address of the job's head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.toolkit.collectors.connections.heads_reached import HeadsReached, Knock
from verl_doctor.toolkit.collectors.network.network import with_port
from verl_doctor.toolkit.collectors.ray.addresses import Place, RayAddresses
from verl_doctor.toolkit.collectors.ray.job_nodes import Head
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_HEAD = Head(
    host="head",
    given_by="RAY_ADDRESS of this shell",
    port=6379,
    address="10.0.0.9",
    source="10.0.0.5",
    interface="eth0",
)


def _examples() -> list[Example]:
    return [
        Example("the head responds", (HeadsReached((Knock(head=_HEAD, reply="connected"),)),)),
        Example(
            "the driver's own address, which RAY101 reports",
            (
                HeadsReached((Knock(head=replace(_HEAD, host="10.0.0.9"), reply="refused"),)),
                RayAddresses(
                    (
                        Place(
                            source="RAY_ADDRESS",
                            given_by="RAY_ADDRESS",
                            text="10.0.0.9:6379",
                            host="10.0.0.9",
                            port=6379,
                            reply="refused",
                        ),
                    )
                ),
            ),
        ),
        Example(
            "nothing is listening",
            (HeadsReached((Knock(head=_HEAD, reply="refused", error="Connection refused"),)),),
            "nothing is listening on 10.0.0.9:6379",
        ),
        Example(
            "a raylet that outlives its head by a moment, of a job that may have nothing to do with this one",
            (
                HeadsReached(
                    (
                        Knock(
                            head=replace(_HEAD, given_by="raylet 6602", raylet=6602),
                            reply="refused",
                            error="Connection refused",
                        ),
                    )
                ),
            ),
            "set by raylet 6602",
        ),
        Example(
            "a firewall",
            (HeadsReached((Knock(head=_HEAD, reply="silence", error="no answer within 2 s"),)),),
            "10.0.0.9:6379 does not answer",
        ),
        Example(
            "no route",
            (HeadsReached((Knock(head=_HEAD, reply="no route", error="No route to host"),)),),
            "No route to host",
        ),
        Example(
            "an unknown name",
            (HeadsReached((Knock(head=Head(host="haed", given_by="RAY_ADDRESS"), reply="no such name"),)),),
            "haed does not resolve",
        ),
    ]


@check("NET116", phase="ray", cost="live", examples=_examples)
def head_unreachable(reached: HeadsReached, addresses: RayAddresses | Unknown) -> Iterator[Finding]:
    """Nothing answers at the address of the job's head.

    ## Why it matters

    Ray keeps retrying such an address: `ray.init` waits for minutes, then fails with `Timed out while waiting
    for GCS to become available`, or prints nothing at all. A refused connection means that the machine is up
    but Ray is not, or uses another port; silence means a firewall, or an address that no machine has.

    ## How to fix

    Start the head first, and give the other nodes the address that its `ray start` prints. Behind a firewall,
    open ports 6379, 8265, 10001 and the worker ports between the nodes. If the address belongs to an earlier
    cluster, run `unset RAY_ADDRESS`.
    """
    taken = None if isinstance(addresses, Unknown) else addresses.taken
    for knock in reached.knocks:
        head = knock.head
        if knock.reply == "connected" or (taken and (taken.host, taken.port) == (head.host, head.port)):
            continue
        at = with_port(head.address or head.host, head.port)
        message = {
            "refused": f"nothing is listening on {at}: Ray is not running there, or uses another port",
            "silence": f"{at} does not answer: a firewall blocks it, or no machine has this address",
            "no route": f"{at} cannot be reached from here: {knock.error}",
            "no such name": f"{head.host} does not resolve to an address",
        }[knock.reply]
        yield Finding(
            f"{message} (set by {head.given_by})",
            Evidence(
                knock.error or knock.reply,
                "an answer",
                f"a connection from {head.source} ({head.interface})"
                if head.source
                else "this machine's resolver",
            ),
            subject=Subject("address", at),
            location=Location(head.path, head.line) if head.path and head.line else None,
            remedy=f"start the head, or end {head.given_by}"
            if head.raylet
            else f"start the head, or correct {head.given_by}",
            severity="warning" if head.raylet else None,
        )
