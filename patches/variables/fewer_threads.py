"""Fix for HOST102: reduce the threads of processes."""

from __future__ import annotations

from verl_doctor.checks.host._threads import LEAN
from verl_doctor.toolkit.change import Change, SetVariable, fix
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.rule import Finding

_MANY_CORES = 16


@fix("fewer-threads", repairs="HOST102", safety="safe", restart="Ray and the job")
def fewer_threads(_: Finding, limits: HostLimits) -> list[Change]:
    """Let Ray's workers and the driver start fewer threads.

    A worker of Ray 2.60 then has 26 threads instead of 53 on a machine with 64 cores, and the driver 64 fewer
    (measured on 2026-11-21). Results do not change.
    """
    # The reasons omit the finding's numbers: they count what is running now, so the file would change with
    # each check.
    why = "each Ray worker starts a communication thread for each core, and few threads are left here"
    changes: list[Change] = [SetVariable(LEAN, "1", why, "the limit is raised")]
    if (limits.online or 0) > _MANY_CORES:
        why = "numpy in the driver starts a thread for each core, up to 64, and few threads are left here"
        changes.append(SetVariable("OPENBLAS_NUM_THREADS", "1", why, "the limit is raised"))
    return changes
