"""NET109: InfiniBand is present, but processes may not lock the memory that it needs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import one_machine
from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.checks.shared.network_examples import ACTIVE, ONE, TWO, adapters
from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limit
from verl_doctor.toolkit.collectors.network.rdma import Rdma
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

# Each connection locks 4 MiB (NCCL_BUFFSIZE) per channel, with tens of channels to each of several
# neighbours.
_ENOUGH = 1 << 30
_DOCKERS = healthy(locked=Limit(soft=65536, hard=65536))


def _examples() -> list[Example]:
    return [
        Example("no limit", (ACTIVE, TWO, an_h200_node())),
        Example(
            "a limit far above what is needed",
            (ACTIVE, TWO, an_h200_node(healthy(locked=Limit(soft=1 << 38, hard=1 << 38)))),
        ),
        Example("one node", (ACTIVE, ONE, an_h200_node(_DOCKERS))),
        Example("no port that carries data", (adapters("DOWN"), TWO, an_h200_node(_DOCKERS))),
        Example("Ray runs with more than this shell", (ACTIVE, TWO, an_h200_node(_DOCKERS, healthy(7)))),
        Example(
            "docker's default", (ACTIVE, TWO, an_h200_node(_DOCKERS)), "this shell may lock only 64.0 KiB"
        ),
        Example(
            "Ray runs with less than this shell",
            (ACTIVE, TWO, an_h200_node(healthy(), healthy(7, locked=Limit(soft=8 << 20, hard=8 << 20)))),
            "the raylet (process 7) may lock only 8.0 MiB",
        ),
    ]


@check("NET109", phase="workers", applies=one_machine, examples=_examples)
def infiniband_memory_not_lockable(rdma: Rdma, nodes: JobNodes, limits: HostLimits) -> Iterator[Finding]:
    """InfiniBand is present, but processes may not lock the memory that it needs.

    ## Why it matters

    An adapter reads and writes memory directly, so this memory must be locked. NCCL locks some megabytes for
    each connection; beyond the limit it stops with `ibv_reg_mr ... Cannot allocate memory`. Workers inherit
    the limit of their raylet, not that of your shell.

    ## How to fix

    Use `docker run --ulimit memlock=-1`; or add `* - memlock unlimited` to /etc/security/limits.conf and log
    in again; or set `LimitMEMLOCK=infinity` for a service; or, for Slurm,
    `PropagateResourceLimitsExcept=MEMLOCK`. Then restart Ray.
    """
    low = [each for each in limits.subjects if each.lockable < _ENOUGH]
    if rdma.active and low:
        tightest = min(low, key=lambda each: each.lockable)
        yield Finding(
            (
                f"{tightest.name} may lock only {in_bytes(tightest.lockable)} of memory, but InfiniBand "
                "needs more"
            ),
            Evidence(
                f"{'; '.join(f'{each.name}: {in_bytes(each.lockable)}' for each in low)}; {nodes.several}",
                "unlimited",
                f"/proc/{tightest.pid or 'self'}/limits, Max locked memory",
            ),
            subject=Subject("limit", "locked memory"),
            remedy="run ulimit -l unlimited before Ray starts; for a container pass --ulimit memlock=-1",
        )
