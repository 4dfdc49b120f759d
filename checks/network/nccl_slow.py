"""NET131: NCCL is far slower than the links between the GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from verl_doctor.checks.shared.gpus import healthy, node
from verl_doctor.toolkit.collectors.cuda.collective import Collective
from verl_doctor.toolkit.collectors.cuda.collective_trial import Trial
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus, Peers
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_LEAST_OVER_NVLINK = 20.0  # GB/s: less than PCIe gives, where an H200 reached 213 over NVLink and 23 without
_LINKED = node(healthy(), healthy(1), peers=(Peers(first=0, second=1, read="ok", nvlink=True),))
_APART = node(healthy(), healthy(1), peers=(Peers(first=0, second=1, read="ok"),))


def _ran(bandwidth: float) -> Collective:
    return Collective(gpus=(0, 1), nccl="2.28.9", trials=(Trial(works=True, bandwidth=bandwidth),))


def _examples() -> list[Example]:
    return [
        Example("NVLink at work", (_ran(213), _LINKED)),
        Example("slow, but there is no NVLink", (_ran(3), _APART)),
        Example("NVLink that NCCL does not use", (_ran(9.5), _LINKED), "9.5 GB/s"),
    ]


@check("NET131", severity="warning", cost="gpu", requires={"NET130"}, examples=_examples)
def nccl_slow(collective: Collective, gpus: Gpus) -> Iterator[Finding]:
    """NCCL is far slower than the links between the GPUs.

    ## Why it matters

    All GPUs are linked by NVLink, yet an all-reduce of 16 MiB runs at the speed of PCIe or below. Each weight
    update and each tensor-parallel layer waits for it.

    ## How to fix

    Check whether NCCL_P2P_LEVEL, NCCL_ALGO, NCCL_PROTO or another NCCL variable is set, whether another job
    was using these GPUs, and which channels NCCL_DEBUG=INFO reports (`via P2P` is right, `via SHM` and `via
    NET` are not).
    """
    linked = {(pair.first, pair.second) for pair in gpus.peers if pair.nvlink}
    if not set(combinations(sorted(collective.gpus), 2)) <= linked:
        return
    busy = any(device.holders for device in gpus.devices if device.index in collective.gpus)
    if collective.plain.works and collective.plain.bandwidth < _LEAST_OVER_NVLINK:
        yield Finding(
            (
                f"an all-reduce of 16 MiB runs at {collective.plain.bandwidth:g} GB/s over GPUs that are "
                "linked by NVLink"
            ),
            Evidence(
                found=f"{collective.plain.bandwidth:g} GB/s of bus bandwidth",
                wanted=f"more than {_LEAST_OVER_NVLINK:g} GB/s",
                read_from=f"NCCL {collective.nccl}, with the torch of this environment",
            ),
            subject=Subject("library", "NCCL"),
            remedy="check NCCL's variables in the environment"
            + (
                ", and measure again when these GPUs are idle: other processes are using them" if busy else ""
            ),
            severity="info" if busy else None,
        )
