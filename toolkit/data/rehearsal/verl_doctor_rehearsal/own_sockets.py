"""Sockets under names that no other job on this machine has.

verl passes weights to vLLM through `/tmp/rl-colocate-zmq-JOB-replica-R-rank-N.sock`, and the first job of every Ray cluster has the
number 01000000 (verl/workers/rollout/vllm_rollout): a rehearsal beside a real job would take that one's socket away.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "VERL_DOCTOR_JOB"


def use() -> None:
    """Let the number of the Ray job, as verl asks for it, be this rehearsal's own."""
    own = os.environ.get(VARIABLE)
    if not own:
        return
    from ray.runtime_context import RuntimeContext

    def get_job_id(_self: Any) -> str:
        return own

    RuntimeContext.get_job_id = get_job_id
