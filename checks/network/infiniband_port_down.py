"""NET107: an InfiniBand port that the job would use is not active."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import one_machine, takes_port
from verl_doctor.checks.shared.network_examples import ONE, TWO, adapters, shell
from verl_doctor.toolkit.collectors.connections.network_variables import ADAPTERS, NetworkVariables
from verl_doctor.toolkit.collectors.network.rdma import Port, Rdma
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("all are active", (adapters("ACTIVE", "ACTIVE"), TWO, *shell())),
        Example("one node: NCCL does not use them", (adapters("INIT"), ONE, *shell())),
        Example(
            "the job does not use an Ethernet port without a cable",
            (adapters("DOWN", link="Ethernet"), TWO, *shell()),
        ),
        Example("none is cabled", (adapters("DOWN", "DOWN"), TWO, *shell())),
        Example("no subnet manager", (adapters("ACTIVE", "INIT"), TWO, *shell()), "mlx5_1:1 is INIT"),
        Example(
            "one rail of four is dead",
            (adapters("ACTIVE", "ACTIVE", "DOWN", "ACTIVE"), TWO, *shell()),
            "mlx5_2:1 is DOWN",
        ),
        Example("the port is excluded", (adapters("ACTIVE", "INIT"), TWO, *shell(NCCL_IB_HCA="^mlx5_1"))),
        Example(
            "the port is named",
            (adapters("ACTIVE", "DOWN", link="Ethernet"), TWO, *shell(NCCL_IB_HCA="=mlx5_1:1")),
            "mlx5_1:1 is DOWN",
        ),
    ]


@check("NET107", severity="warning", applies=one_machine, examples=_examples)
def infiniband_port_down(
    rdma: Rdma,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """An InfiniBand port that the job would use is not active.

    ## Why it matters

    NCCL skips ports that are not ACTIVE and mentions it only in its log. With fewer ports than the other
    nodes the job is slower, or fails when the nodes agree on rails; with none it falls back to TCP. INIT
    means that the cable works but no subnet manager has given the port an address.

    ## How to fix

    DOWN: check the cable, its transceiver and the switch port with `ibstat`. INIT: ask the fabric's
    administrator about the subnet manager. Until then leave this node out, or name the good ports in
    NCCL_IB_HCA on all nodes.
    """
    requested = next((given.value for given in variables.of(ADAPTERS) if given.value), "")
    bad = [port for port in rdma.ports if not port.active and _meant(port, rdma, requested)]
    if bad:
        states = ", ".join(f"{port} is {port.state or 'in no state'}" for port in bad)
        yield Finding(
            (
                f"{states}: NCCL skips {'it' if len(bad) == 1 else 'them'}; {len(rdma.active)} of "
                f"{len(rdma.ports)} ports are active"
            ),
            Evidence(
                "; ".join(f"{port}: {port.state}, {port.physical}, {port.link}" for port in bad),
                "ACTIVE",
                "/sys/class/infiniband/*/ports/*/state",
            ),
            subject=Subject("interface", ", ".join(map(str, bad))),
            remedy=(
                "check the cable and the switch port (ibstat) if it is DOWN; ask the fabric's administrator "
                "about the subnet manager if it is INIT"
            ),
            severity=None if _named(requested) or any(port.state != "DOWN" for port in bad) else "info",
        )


def _named(requested: str) -> bool:
    """Whether NCCL_IB_HCA lists the adapters to use, rather than those to exclude."""
    return bool(requested) and not requested.startswith("^")


def _meant(port: Port, rdma: Rdma, requested: str) -> bool:
    """Whether the job would use this port.

    It would if the port is named, if it waits for its subnet manager, or if most ports like it are in use.
    """
    if not takes_port(requested, port):
        return False
    if _named(requested):
        return True
    like = [each for each in rdma.ports if each.link == port.link and each.rate == port.rate]
    return port.link == "InfiniBand" and (
        port.state != "DOWN" or 2 * sum(each.active for each in like) > len(like)
    )
