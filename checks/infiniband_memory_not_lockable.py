"""NET109: InfiniBand is here, and processes may not lock the memory that it needs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._interfaces import one_machine
from verl_doctor.checks._network_examples import ONE, TWO, adapters
from verl_doctor.toolkit.fact_job_nodes import JobNodes
from verl_doctor.toolkit.fact_rdma import Rdma
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

# Each connection locks a buffer of 4 MiB (NCCL_BUFFSIZE) for each channel, some tens with each of several neighbours.
_ENOUGH = 1 << 30


@check(
    "NET109",
    applies=one_machine,
    examples=[
        Example("no limit", (adapters("ACTIVE"), TWO)),
        Example("a limit far above what is needed", (adapters("ACTIVE", locked=1 << 38), TWO)),
        Example("one node", (adapters("ACTIVE", locked=65536), ONE)),
        Example("no port that carries data", (adapters("DOWN", locked=65536), TWO)),
        Example("docker's default", (adapters("ACTIVE", locked=65536), TWO), "this shell may lock 64 KiB"),
    ],
)  # fmt: skip
def infiniband_memory_not_lockable(rdma: Rdma, nodes: JobNodes) -> Iterator[Finding]:
    """InfiniBand is here, and processes may not lock the memory that it needs.

    ## Why it matters

    An adapter reads and writes memory by itself, so that memory must stay where it is. NCCL locks some megabytes for each
    connection; beyond the limit it stops with `ibv_reg_mr ... Cannot allocate memory`. Workers have the limit of their raylet, not
    that of your shell.

    ## How to fix

    `docker run --ulimit memlock=-1`, or `* - memlock unlimited` in /etc/security/limits.conf and a new login, or
    `LimitMEMLOCK=infinity` for a service; for SLURM `PropagateResourceLimitsExcept=MEMLOCK`. Then start Ray anew.
    """
    low = [each for each in rdma.locked if each.limit is not None and each.limit < _ENOUGH]
    if rdma.active and low:
        tightest = min(low, key=lambda each: each.limit or 0)
        yield Finding(
            f"{tightest.who} may lock {_size(tightest.limit or 0)} of memory, and InfiniBand needs more",
            Evidence(
                f"{'; '.join(f'{each.who}: {_size(each.limit or 0)}' for each in low)}; {nodes.several}",
                "unlimited",
                "/proc/PID/limits, Max locked memory",
            ),
            remedy="ulimit -l unlimited before Ray is started; in a container --ulimit memlock=-1",
        )


def _size(number: int) -> str:
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"
