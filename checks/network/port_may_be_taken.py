"""NET115: a port of the job lies in the kernel's range for outgoing connections."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.connections.ports import Ports, RequestedPorts
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_SCRIPT = "/home/me/run.sh"
_USUAL = (32768, 60999)


def _examples() -> list[Example]:
    return [
        Example(
            "below",
            (
                Ports(
                    listeners=(),
                    wanted=(
                        RequestedPorts(first=6379, last=6379, what="ray start --port", path=_SCRIPT, line=4),
                    ),
                    ephemeral=_USUAL,
                ),
            ),
        ),
        Example(
            "reserved",
            (
                Ports(
                    listeners=(),
                    wanted=(RequestedPorts(first=40000, last=40010, what="x", path=_SCRIPT, line=4),),
                    ephemeral=_USUAL,
                    reserved=((40000, 40100),),
                ),
            ),
        ),
        Example(
            "the range is unknown",
            (
                Ports(
                    listeners=(),
                    wanted=(RequestedPorts(first=40000, last=40000, what="x", path=_SCRIPT, line=4),),
                ),
            ),
        ),
        Example(
            "inside the range",
            (
                Ports(
                    listeners=(),
                    wanted=(
                        RequestedPorts(
                            first=40000, last=40000, what="ray start --port", path=_SCRIPT, line=4
                        ),
                    ),
                    ephemeral=_USUAL,
                ),
            ),
            "port 40000 of ray start --port",
        ),
        Example(
            "the range was widened",
            (
                Ports(
                    listeners=(),
                    wanted=(
                        RequestedPorts(
                            first=10002, last=19999, what="the ports of Ray's workers", path=_SCRIPT, line=4
                        ),
                    ),
                    ephemeral=(1024, 65535),
                ),
            ),
            "ports 10002 to 19999 of",
        ),
    ]


@check("NET115", severity="info", examples=_examples)
def port_may_be_taken(ports: Ports) -> Iterator[Finding]:
    """A port of the job lies in the kernel's range for outgoing connections.

    ## Why it matters

    Each outgoing connection takes a port from the range of `net.ipv4.ip_local_port_range`. A program that
    listens on one of these ports occasionally finds it taken: `Address already in use` in one start of many.

    ## How to fix

    Use ports below the range, or reserve them: `sysctl net.ipv4.ip_local_reserved_ports=40000-40010`.
    """
    for wanted in ports.wanted:
        if ports.ephemeral is None:
            return
        first, last = max(wanted.first, ports.ephemeral[0]), min(wanted.last, ports.ephemeral[1])
        if first > last or any(low <= first and last <= high for low, high in ports.reserved):
            continue
        ports_text = f"port {first}" if first == last else f"ports {first} to {last}"
        yield Finding(
            f"{ports_text} of {wanted.what} may be taken by an outgoing connection",
            Evidence(
                f"ip_local_port_range is {ports.ephemeral[0]} to {ports.ephemeral[1]}",
                f"below {ports.ephemeral[0]}",
                "/proc/sys/net/ipv4/ip_local_port_range",
            ),
            subject=Subject("port", _ports(wanted), wanted.what),
            location=Location(wanted.path, wanted.line) if wanted.path else None,
            remedy=f"use ports below {ports.ephemeral[0]}"
            if ports.ephemeral[0] > 2048
            else "reserve them with ip_local_reserved_ports",
        )


def _ports(wanted: RequestedPorts) -> str:
    return str(wanted.first) if wanted.first == wanted.last else f"{wanted.first}-{wanted.last}"
