"""The environment in the examples of the VLLM1xx rules."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.api.uses import ApiUse, Unread, VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree

BOTH = ("sync rollout", "async rollout")
SERVER = "/env/verl/workers/rollout/vllm_rollout/vllm_async_server.py"


def seen(*uses: ApiUse, unread: tuple[Unread, ...] = ()) -> tuple[VllmUses]:
    """The uses found by reading verl 0.6.1 against vLLM 0.12.0: 170 that exist, and these."""
    verl = Tree(folder="/env/verl", module="verl", version="0.6.1", found_in="site-packages")
    vllm = Tree(folder="/env/vllm", module="vllm", version="0.12.0", found_in="site-packages")
    return (VllmUses(verl=verl, library=vllm, uses=uses, present=170, paths=BOTH, unread=unread),)
