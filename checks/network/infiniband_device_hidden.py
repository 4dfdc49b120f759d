"""NET108: InfiniBand ports are active, but this container or user may not open their devices."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import has_gpus, one_machine
from verl_doctor.checks.shared.network_examples import GPUS, NO_GPUS, ONE, TWO, adapters
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.network.rdma import Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("the devices are here", (adapters("ACTIVE"), TWO, GPUS)),
        Example("one node", (adapters("ACTIVE", devices=0), ONE, GPUS)),
        Example("no GPU: NCCL does not run here", (adapters("ACTIVE", devices=0), TWO, NO_GPUS)),
        Example("no port is active", (adapters("DOWN", devices=0), TWO, GPUS)),
        Example(
            "a container without them",
            (adapters("ACTIVE", "ACTIVE", devices=0), TWO, GPUS),
            "/dev/infiniband/uverbs* is missing",
        ),
        Example(
            "a user without permission",
            (adapters("ACTIVE", closed=1), TWO, GPUS),
            "cannot be opened by this user",
        ),
    ]


@check("NET108", severity="warning", applies=one_machine, examples=_examples)
def infiniband_device_hidden(
    rdma: Rdma, nodes: JobNodes, resources: Resources | Unknown
) -> Iterator[Finding]:
    """InfiniBand ports are active, but this container or user cannot open their devices.

    ## Why it matters

    A container sees the host's adapters in `/sys` even if it may not use them. NCCL opens
    `/dev/infiniband/uverbs*`; if it cannot, it falls back to TCP without an error. The result is a tenth of
    the bandwidth, or a job that hangs because other nodes do use InfiniBand.

    ## How to fix

    Start the container with the devices: `docker run --device /dev/infiniband --cap-add IPC_LOCK --ulimit
    memlock=-1`. On Kubernetes, request the adapter's resource, such as `rdma/hca`.
    """
    if not rdma.active or not has_gpus(resources):
        return
    if rdma.devices and len(rdma.closed) < len(rdma.devices):
        return
    ports = f"{len(rdma.active)} InfiniBand or RoCE ports are active"
    if not rdma.devices:
        problem = f"{ports}, but /dev/infiniband/uverbs* is missing"
    else:
        problem = f"{ports}, but {rdma.closed[0]} cannot be opened by this user"
    yield Finding(
        f"{problem}: NCCL falls back to TCP",
        Evidence(
            f"{', '.join(map(str, rdma.active))}; {nodes.several}",
            "readable and writable /dev/infiniband/uverbs*",
            "/dev/infiniband",
        ),
        subject=Subject("folder", "/dev/infiniband"),
        remedy=(
            "start the container with --device /dev/infiniband, --cap-add IPC_LOCK and --ulimit memlock=-1"
        ),
    )
