"""The environment in the examples of the VLLM1xx rules."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.api.uses import ApiUse, Unread, VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree

BOTH = ("sync rollout", "async rollout")
SERVER = "/env/verl/workers/rollout/vllm_rollout/vllm_async_server.py"


def seen(*uses: ApiUse, unread: tuple[Unread, ...] = ()) -> tuple[VllmUses]:
    """The uses found by reading verl 0.6.1 against vLLM 0.12.0: 170 that exist, and these."""
    verl = Tree("/env/verl", "verl", "0.6.1", "site-packages")
    vllm = Tree("/env/vllm", "vllm", "0.12.0", "site-packages")
    return (VllmUses(verl, vllm, uses, 170, BOTH, unread),)
