"""The log probabilities requested by verl's rollout; an engine in place of verl's gets the same setting.

vLLM chooses its sampler by it. For log probabilities after top-k and top-p it uses its own, and otherwise, on
most GPUs, FlashInfer's, which without compiled kernels keeps nvcc busy for minutes: an engine with another
setting would try what the job never does.
"""

from __future__ import annotations

from typing import Any

from verl_doctor.toolkit.collectors.configuration.launch_values import LaunchValues
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.facts import Unknown

_KEY = "actor_rollout_ref.rollout.logprobs_mode"


def rollout_logprobs(sampler: VllmSampler | Unknown, values: LaunchValues) -> dict[str, Any]:
    """Return the engine's `logprobs_mode`: the job's, else verl's default; nothing without such a key."""
    given = values.get(_KEY)
    if given is not None and given.known and given.text:
        return {"logprobs_mode": given.text}
    wanted = "" if isinstance(sampler, Unknown) else sampler.wanted_by_verl
    return {"logprobs_mode": wanted} if wanted else {}
