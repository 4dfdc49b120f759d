"""Sockets with names that no other job on this machine has.

verl passes weights to vLLM through `/tmp/rl-colocate-zmq-JOB-replica-R-rank-N.sock`, and the first job of
every Ray cluster has the number 01000000 (verl/workers/rollout/vllm_rollout): a rehearsal would take over the
socket of a real job on the same machine.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "VERL_DOCTOR_JOB"


def use() -> None:
    """Replace the number of the Ray job that verl reads by the rehearsal's own."""
    own = os.environ.get(VARIABLE)
    if not own:
        return
    from ray.runtime_context import RuntimeContext

    def get_job_id(_self: Any) -> str:
        return own

    RuntimeContext.get_job_id = get_job_id
