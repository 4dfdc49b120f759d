"""RAY134: the job's settings for its Ray contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from verl_doctor.checks.shared.ray import finding_its_place, ray_place
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_GCS, _DASHBOARD = "6379", "8265"  # Ray's defaults (ray/_private/ray_constants.py)
_RUN = "/home/me/run.sh"
_NONE = RayAddresses()


def _start(line: int = 3, **options: str) -> RayStart:
    return RayStart(
        path=_RUN, line=line, options={name.replace("_", "-"): value for name, value in options.items()}
    )


_HEAD = _start(head="", port="6380")
_HTTP = "http://127.0.0.1:8265"


def _examples() -> list[Example]:
    return [
        Example(
            "a head, and workers that join it", (RayStarts((_HEAD, _start(5, address="$HEAD:6380"))), _NONE)
        ),
        Example(
            "the port is unknown",
            (RayStarts((_start(head="", port="$PORT"), _start(5, address="$HEAD:6379"))), _NONE),
        ),
        Example("a cluster that already runs", (RayStarts((_start(address="10.0.0.5:6379"),)), _NONE)),
        Example(
            "two clusters, each with its workers",
            (RayStarts((_HEAD, _start(4, head="", port="6390"), _start(5, address="$B:6390"))), _NONE),
        ),
        Example(
            "the job goes to the dashboard",
            (RayStarts(commands=(_HEAD,), submits=(_start(6, address=_HTTP),)), _NONE),
        ),
        Example(
            "to another cluster's",
            (RayStarts(commands=(_HEAD,), submits=(_start(6, address="http://10.0.0.9:8265"),)), _NONE),
        ),
        Example(
            "one address, twice", (RayStarts(), RayAddresses((ray_place(source="ray.init"), ray_place())))
        ),
        Example(
            "workers join another port",
            (RayStarts((_HEAD, _start(5, address="$HEAD:6379"))), _NONE),
            "ray start --address joins port 6379, but the head starts with 6380",
        ),
        Example(
            "the head has Ray's own port",
            (RayStarts((_start(head=""), _start(5, address="$HEAD:6380"))), _NONE),
            "joins port 6380, but the head starts with 6379",
        ),
        Example(
            "the job goes to another port than the dashboard's",
            (
                RayStarts(
                    commands=(_start(head="", dashboard_port="8270"),), submits=(_start(6, address=_HTTP),)
                ),
                _NONE,
            ),
            "is sent to port 8265, but the head's dashboard starts with 8270",
        ),
        Example(
            "no dashboard",
            (
                RayStarts(
                    commands=(_start(head="", include_dashboard="false"),),
                    submits=(_start(6, address=_HTTP),),
                ),
                _NONE,
            ),
            "without a dashboard",
        ),
        Example(
            "the driver has another address than everything else",
            (RayStarts(), RayAddresses((ray_place("10.0.0.9:6379", "ray.init"), ray_place()))),
            "joins 10.0.0.9:6379",
        ),
    ]


@check("RAY134", phase="ray", examples=_examples)
def ray_addresses_disagree(
    starts: RayStarts | Unknown, addresses: RayAddresses | Unknown
) -> Iterator[Finding]:
    """The job's settings for its Ray contradict each other.

    ## Why it matters

    A node that joins a port other than the head's waits for it, or joins another cluster. A driver and its
    child processes with different addresses do not see each other's actors: `has 0 actors`. `ray job submit`
    connects to the dashboard, whose port is not that of the cluster.

    ## How to fix

    Define the address and the port once, in variables at the top of the launch script, and use these
    everywhere.
    """
    if isinstance(starts, RayStarts):
        heads = [command for command in starts.commands if "head" in command.options]
        if heads:
            yield from _of_joining(heads, starts.commands)
            yield from _of_submitting(heads, starts.submits)
    if isinstance(addresses, RayAddresses):
        yield from _of_driver(addresses)


def _of_joining(heads: list[RayStart], commands: Iterable[RayStart]) -> Iterator[Finding]:
    ports = {head.options.get("port") or _GCS for head in heads}
    for command in commands:
        port = command.options.get("address", "").rpartition(":")[2]
        if port.isdigit() and _known(ports) and port not in ports:
            yield Finding(
                (
                    f"ray start --address joins port {port}, but the head starts with "
                    f"{' and '.join(sorted(ports))}"
                ),
                Evidence(found=f"--address={command.options['address']}", wanted=f"port {min(ports)}"),
                subject=Subject("address", command.options["address"]),
                location=Location(command.path, command.line),
                also=_places(heads),
                remedy="put the port into a variable and use it for both",
            )


def _of_submitting(heads: list[RayStart], submits: Iterable[RayStart]) -> Iterator[Finding]:
    """Judge a job that is submitted to this machine.

    A head started here does not concern a job submitted elsewhere.
    """
    ports = {head.options.get("dashboard-port") or _DASHBOARD for head in heads}
    without = all(head.options.get("include-dashboard", "").lower() in ("false", "0", "no") for head in heads)
    for submit in submits:
        address = submit.options.get("address", "")
        host, _, port = urlsplit(address).netloc.rpartition(":")
        if host not in ("127.0.0.1", "localhost"):
            continue
        message = remedy = ""
        if without:
            message = "the job is sent to a dashboard, but the head starts without a dashboard"
            remedy = "run ray start --head --include-dashboard=true"
        elif port.isdigit() and _known(ports) and port not in ports:
            started = " and ".join(sorted(ports))
            message = f"the job is sent to port {port}, but the head's dashboard starts with {started}"
            remedy = "put the port into a variable and use it for both"
        if message:
            yield Finding(
                message,
                Evidence(found=f"--address={address}", wanted=f"port {min(ports)}"),
                subject=Subject("address", address),
                location=Location(submit.path, submit.line),
                also=_places(heads),
                remedy=remedy,
            )


def _of_driver(addresses: RayAddresses) -> Iterator[Finding]:
    driver, variable = addresses.of("ray.init"), addresses.of("RAY_ADDRESS")
    if addresses.submitted or driver is None or variable is None:
        return
    if driver.address and variable.address and driver.address != variable.address:
        yield Finding(
            f"the driver joins {driver.address}, but RAY_ADDRESS leads to {variable.address}",
            Evidence(
                found=f"{driver.given_by} is {driver.text}, {variable.given_by} is {variable.text}",
                wanted="one address",
            ),
            subject=Subject("variable", "RAY_ADDRESS"),
            location=finding_its_place(driver),
            remedy=(
                "set only one of them, or both to the same address; ray status and processes that the job "
                "starts use RAY_ADDRESS"
            ),
            severity="warning",
        )


def _known(ports: Iterable[str]) -> bool:
    """Whether all ports are known numbers; for 0, Ray picks a free port."""
    return all(port.isdigit() and int(port) for port in ports)


def _places(heads: Iterable[RayStart]) -> tuple[Location, ...]:
    return tuple(Location(head.path, head.line) for head in heads)
