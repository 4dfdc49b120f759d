"""VLLM103: verl calls vLLM with arguments that it does not accept."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_messages import mismatched_calls
from verl_doctor.checks.api._vllm_examples import SERVER, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check

_TOO_MANY = ApiUse(
    path=SERVER,
    line=340,
    kind="positional",
    name="vllm.entrypoints.openai.api_server.init_app_state(4)",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    now="engine_client, state, args",
    read_from="/env/vllm/entrypoints/openai/api_server.py",
)
_RENAMED = ApiUse(
    path=SERVER,
    line=332,
    kind="keyword",
    name="vllm.v1.engine.async_llm.AsyncLLM.from_vllm_config(disable_log_requests)",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    now="enable_log_requests",
)


def _examples() -> list[Example]:
    return [
        Example("every call fits", seen()),
        Example("a rename that VLLM101 reports", seen(_RENAMED)),
        Example(
            "a function takes one argument less",
            seen(_TOO_MANY),
            expect="init_app_state() is called with 4 positional arguments",
        ),
    ]


@check(
    "VLLM103",
    requires=("VLLM106",),
    paths=rollouts,
    unjudged=uses_unjudged("call", "keyword", "positional", "required", "meaning"),
    examples=_examples,
)
def vllm_call_mismatch(uses: VllmUses) -> Iterator[Finding]:
    """verl calls vLLM with arguments that it does not accept.

    ## Why it matters

    The call raises TypeError when it is reached: at the start of the engine, after the model has been loaded,
    or later. If only the order of the parameters has changed, nothing is raised and the values end up in the
    wrong parameters.

    ## How to fix

    Change the call to the parameters that the finding shows, or install a vLLM for which this verl was
    written: `verl-doctor check --tree vllm=DIR` checks a release before you install it.
    """
    yield from mismatched_calls(uses)
