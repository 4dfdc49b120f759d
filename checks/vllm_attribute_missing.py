"""VLLM104: verl reads an attribute that this vLLM does not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._vllm_breaks import breaks, by_cause, finding
from verl_doctor.toolkit.fact_trees import Tree
from verl_doctor.toolkit.fact_vllm_uses import VllmUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check

VERL = Tree("/env/verl", "verl", "0.6.1", "site-packages")
VLLM = Tree("/env/vllm", "vllm", "0.8.5", "site-packages")
SERVER = "/env/verl/workers/rollout/vllm_rollout/vllm_async_server.py"
PATHS = ("sync rollout", "async rollout")
GONE = VllmUse(
    SERVER, 337, "attribute", "vllm.v1.engine.async_llm.AsyncLLM.reset_mm_cache", "missing", "start",
    ("async rollout",), reason="AsyncLLM has no reset_mm_cache", read_from="/env/vllm/v1/engine/async_llm.py",
)  # fmt: skip
UNKNOWN = VllmUse(
    SERVER, 600, "attribute", "vllm.v1.worker.worker_base.WorkerWrapperBase.load_model", "unknown", "start",
    ("async rollout",), reason="it defines __getattr__",
)  # fmt: skip


@check(
    "VLLM104",
    paths=rollouts,
    examples=[
        Example("every attribute is there", (VllmUses(VERL, VLLM, (), 170, PATHS),)),
        Example("whether it is there cannot be told", (VllmUses(VERL, VLLM, (UNKNOWN,), 170, PATHS),)),
        Example(
            "a method does not exist",
            (VllmUses(VERL, VLLM, (GONE,), 170, PATHS),),
            expect="AsyncLLM.reset_mm_cache",
        ),
    ],
)
def vllm_attribute_missing(uses: VllmUses) -> Iterator[Finding]:
    """Verl reads an attribute that this vLLM does not have.

    ## Why it matters
    The line raises AttributeError when it is reached: at engine start, in the first step, or when a setting such as
    LoRA first needs it.

    ## How to fix
    Use the attribute that the finding suggests, if it suggests one, or install a vLLM for which this verl was written:
    `verl-doctor matrix` lists the pairs that fit.
    """
    for group in by_cause(breaks(uses, "attribute"), lambda use: use.name):
        use = group[0]
        owner, _, name = use.name.rpartition(".")
        short = owner.rpartition(".")[2] if owner.rpartition(".")[2][:1].isupper() else owner
        yield finding(
            group,
            f"verl reads {short}.{name}, which vLLM {uses.vllm.version} does not have"
            + (f": it is {use.now} now" if "." in use.now else ""),
            found=use.reason,
            wanted=use.now if "." in use.now else f"{name} (nearest there: {use.now})" if use.now else name,
            remedy=f"use {use.now}" if "." in use.now else "use a vLLM release that this verl supports",
        )
