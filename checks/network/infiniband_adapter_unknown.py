"""NET110: NCCL_IB_HCA leaves NCCL no adapter."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import has_gpus, one_machine, selection, takes_port
from verl_doctor.checks.network._network_places import places
from verl_doctor.checks.shared.network_examples import GPUS, NO_GPUS, ONE, TWO, adapters, shell
from verl_doctor.toolkit.collectors.connections.network_variables import ADAPTERS, NetworkVariables
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.network.rdma import Rdma
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_HERE = adapters("ACTIVE", "ACTIVE", "ACTIVE")


def _examples() -> list[Example]:
    return [
        Example("a prefix", (_HERE, TWO, GPUS, *shell(NCCL_IB_HCA="mlx5"))),
        Example("names with ports", (_HERE, TWO, GPUS, *shell(NCCL_IB_HCA="=mlx5_0:1,mlx5_2:1"))),
        Example("an adapter is excluded", (_HERE, TWO, GPUS, *shell(NCCL_IB_HCA="^=mlx5_2"))),
        Example("one node", (_HERE, ONE, GPUS, *shell(NCCL_IB_HCA="bnxt_re0"))),
        Example(
            "the nodes with GPUs may have other adapters",
            (_HERE, TWO, NO_GPUS, *shell(NCCL_IB_HCA="bnxt_re0")),
        ),
        Example(
            "another vendor's adapter",
            (_HERE, TWO, GPUS, *shell(NCCL_IB_HCA="bnxt_re0")),
            "no active port of this machine is selected",
        ),
        Example(
            "one of two adapters does not exist",
            (_HERE, TWO, GPUS, *shell(NCCL_IB_HCA="=mlx5_0,mlx5_7")),
            "mlx5_7 is not an adapter",
        ),
        Example(
            "an interface is not an adapter",
            (_HERE, TWO, GPUS, *shell(NCCL_IB_HCA="ib0")),
            "no active port of this machine is selected",
        ),
        Example(
            "a port that does not exist",
            (_HERE, TWO, GPUS, *shell(NCCL_IB_HCA="=mlx5_0:2")),
            "no active port of this machine is selected",
        ),
    ]


@check("NET110", severity="warning", applies=one_machine, examples=_examples)
def infiniband_adapter_unknown(
    rdma: Rdma,
    resources: Resources | Unknown,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """NCCL_IB_HCA leaves NCCL no adapter.

    ## Why it matters

    The variable lists adapters (`ls /sys/class/infiniband`), not network interfaces, as prefixes or as whole
    names after `=`. If none matches, NCCL mentions it only in its log and sends everything over TCP. The
    names differ between machines, even between nodes of one cluster.

    ## How to fix

    Remove the variable unless adapters must be excluded: NCCL uses all active ports, for each GPU the nearest
    first.
    """
    if not has_gpus(resources) or not rdma.active:
        return
    adapters = sorted({port.adapter for port in rdma.active})
    for place in places(ADAPTERS, variables):
        value = place.value or ""
        wanted = selection(value)
        taken = [port for port in rdma.active if takes_port(value, port)]
        missing = [name for name in wanted.names if not any(adapter.startswith(name) for adapter in adapters)]
        if not value or (taken and (wanted.exclude or not missing)):
            continue
        problem = (
            f"{' and '.join(missing)} is not an adapter with an active port"
            if taken
            else "no active port of this machine is selected"
        )
        yield Finding(
            f"{place.assignment}: {problem}" + ("" if taken else ", so NCCL falls back to TCP"),
            Evidence(f"{place.assignment} in {place.where}", " or ".join(adapters), "/sys/class/infiniband"),
            subject=Subject("variable", ADAPTERS),
            location=place.location,
            remedy=f"remove {ADAPTERS}, or name some of {', '.join(adapters)}",
        )
