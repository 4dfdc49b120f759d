"""VLLM104: verl reads an attribute that this vLLM does not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_messages import missing_attributes
from verl_doctor.checks.api._vllm_examples import SERVER, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check

_GONE = ApiUse(
    path=SERVER,
    line=337,
    kind="attribute",
    name="vllm.v1.engine.async_llm.AsyncLLM.reset_mm_cache",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    reason="AsyncLLM has no reset_mm_cache",
    read_from="/env/vllm/v1/engine/async_llm.py",
)
_UNKNOWN = ApiUse(
    path=SERVER,
    line=600,
    kind="attribute",
    name="vllm.v1.worker.worker_base.WorkerWrapperBase.load_model",
    resolution="unknown",
    phase="start",
    paths=("async rollout",),
    reason="it defines __getattr__",
)


def _examples() -> list[Example]:
    return [
        Example("every attribute exists", seen()),
        Example("whether it exists is not known", seen(_UNKNOWN)),
        Example(
            "a method does not exist",
            seen(_GONE),
            expect="AsyncLLM.reset_mm_cache",
        ),
    ]


@check(
    "VLLM104", requires=("VLLM106",), paths=rollouts, unjudged=uses_unjudged("attribute"), examples=_examples
)
def vllm_attribute_missing(uses: VllmUses) -> Iterator[Finding]:
    """verl reads an attribute that this vLLM does not have.

    ## Why it matters

    The line raises AttributeError when it is reached: at the start of the engine, in the first step, or when
    a setting such as LoRA first needs it.

    ## How to fix

    Use the attribute that the finding suggests, if any, or install a vLLM for which this verl was written:
    `verl-doctor check --tree vllm=DIR` checks a release before you install it.
    """
    yield from missing_attributes(uses)
