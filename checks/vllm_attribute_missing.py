"""VLLM104: verl reads an attribute that this vLLM does not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._vllm_breaks import SHOWN, breaks, finding, judged
from verl_doctor.checks._vllm_examples import SERVER, seen
from verl_doctor.toolkit.fact_vllm_uses import VllmUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check
from verl_doctor.toolkit.text import listed

_GONE = VllmUse(
    SERVER, 337, "attribute", "vllm.v1.engine.async_llm.AsyncLLM.reset_mm_cache", "missing", "start",
    ("async rollout",), reason="AsyncLLM has no reset_mm_cache", read_from="/env/vllm/v1/engine/async_llm.py",
)  # fmt: skip
_UNKNOWN = VllmUse(
    SERVER, 600, "attribute", "vllm.v1.worker.worker_base.WorkerWrapperBase.load_model", "unknown", "start",
    ("async rollout",), reason="it defines __getattr__",
)  # fmt: skip


@check(
    "VLLM104",
    paths=rollouts,
    examples=[
        Example("every attribute is there", seen()),
        Example("whether it is there cannot be told", seen(_UNKNOWN)),
        Example(
            "a method does not exist",
            seen(_GONE),
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
    `verl-doctor check --vllm DIR` judges one before it is installed.
    """
    version = uses.vllm.version
    yield from judged(
        breaks(uses, "attribute"),
        lambda use: use.name,
        lambda group: _said(group, version),
        lambda every: (
            f"verl reads {len(every)} attributes that vLLM {version} does not have: "
            f"{listed((use.last for use in every), SHOWN)}"
        ),
    )


def _said(group: list[VllmUse], version: str) -> Finding:
    use = group[0]
    owner, _, name = use.name.rpartition(".")
    short = owner.rpartition(".")[2] if owner.rpartition(".")[2][:1].isupper() else owner
    return finding(
        group,
        f"verl reads {short}.{name}, which vLLM {version} does not have"
        + (f": it is {use.now} now" if "." in use.now else ""),
        found=use.reason,
        wanted=use.now if "." in use.now else f"{name} (nearest there: {use.now})" if use.now else name,
        remedy=f"use {use.now}" if "." in use.now else "use a vLLM release that this verl supports",
    )
