"""NET112: NCCL_IB_GID_INDEX selects an entry that is empty or RoCE v1."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import one_machine
from verl_doctor.checks.network._network_places import places
from verl_doctor.checks.shared.network_examples import ONE, TWO, adapters, shell
from verl_doctor.toolkit.collectors.connections.network_variables import ADDRESS_INDEX, NetworkVariables
from verl_doctor.toolkit.collectors.network.rdma import Port, Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Severity, Subject, check

_ROCE = adapters(
    "ACTIVE", link="Ethernet", gids=((0, "IB/RoCE v1"), (1, "RoCE v2"), (2, "IB/RoCE v1"), (3, "RoCE v2"))
)


def _examples() -> list[Example]:
    return [
        Example("RoCE v2", (_ROCE, TWO, *shell(NCCL_IB_GID_INDEX="3"))),
        Example("NCCL chooses", (_ROCE, TWO, *shell(NCCL_IB_GID_INDEX="-1"))),
        Example("one node", (_ROCE, ONE, *shell(NCCL_IB_GID_INDEX="7"))),
        Example(
            "a container without access to the table",
            (adapters("ACTIVE", link="Ethernet", gids=()), TWO, *shell(NCCL_IB_GID_INDEX="3")),
        ),
        Example(
            "InfiniBand's table is not checked", (adapters("ACTIVE"), TWO, *shell(NCCL_IB_GID_INDEX="3"))
        ),
        Example("empty", (_ROCE, TWO, *shell(NCCL_IB_GID_INDEX="5")), "mlx5_0:1 has no address there"),
        Example("RoCE v1", (_ROCE, TWO, *shell(NCCL_IB_GID_INDEX="2")), "is RoCE v1"),
    ]


@check("NET112", phase="workers", applies=one_machine, examples=_examples)
def infiniband_address_index_wrong(
    rdma: Rdma,
    nodes: JobNodes,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """NCCL_IB_GID_INDEX selects an entry that is empty or RoCE v1.

    ## Why it matters

    A RoCE port has a table of addresses. The index of the routable one, RoCE v2 with the interface's IPv4
    address, differs between machines. With an empty entry NCCL stops with `Call to ibv_modify_qp failed`;
    RoCE v1 cannot cross routers.

    ## How to fix

    Remove the variable: since 2.21 NCCL finds the entry itself. `show_gids` lists the table.
    """
    for place in places(ADDRESS_INDEX, variables):
        value = (place.value or "").strip()
        if not value.isdigit():
            continue
        for port in rdma.active:
            if wrong := _wrong(int(value), port):
                why, severity = wrong
                good = [str(index) for index, kind in port.gids if kind == "RoCE v2"]
                yield Finding(
                    f"{place.assignment}: {why}",
                    Evidence(
                        f"{place.assignment} in {place.where}; {nodes.several}",
                        f"not set, or {' or '.join(good)}" if good else "not set",
                        f"/sys/class/infiniband/{port.adapter}/ports/{port.number}/gid_attrs/types",
                    ),
                    subject=Subject("variable", ADDRESS_INDEX),
                    location=place.location,
                    remedy=f"remove {ADDRESS_INDEX}: NCCL finds the entry itself",
                    severity=severity,
                )
                break


def _wrong(index: int, port: Port) -> tuple[str, Severity] | None:
    """What is wrong with an entry, and the severity; None if it works or the table is not readable."""
    if port.link != "Ethernet" or not port.gids:
        return None
    kind = dict(port.gids).get(index)
    if kind is None:
        return f"{port} has no address there", "error"
    if kind == "IB/RoCE v1" and any(k == "RoCE v2" for _, k in port.gids):
        return f"that entry of {port} is RoCE v1", "warning"
    return None
