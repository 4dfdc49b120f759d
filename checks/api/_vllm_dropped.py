"""Parameters that vLLM's callables lost because they find the value elsewhere, with dates.

The sources of no single release show that.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.api.uses import ApiUse


@dataclass(frozen=True)
class Dropped:
    """A parameter that a callable lost, and where it finds the value instead.

    `as_of` is when that was looked up.
    """

    callee: str
    parameter: str
    instead: str
    as_of: str = "2026-11"


DROPPED = (
    Dropped("init_app_state", "vllm_config", "engine_client.vllm_config (from vLLM 0.11.1)"),
    Dropped("OpenAIServingModels", "model_config", "engine_client.model_config (from vLLM 0.11.1)"),
    Dropped("OpenAIServingChat", "model_config", "engine_client.model_config (from vLLM 0.11.1)"),
    Dropped("WorkerWrapperBase", "vllm_config", "what init_worker() is given (from vLLM 0.14.0)"),
)


def dropped(use: ApiUse) -> Dropped | None:
    """The lost parameter that explains why a call does not fit."""
    callee, _, argument = use.name.rstrip(")").partition("(")
    for entry in DROPPED:
        if callee.rpartition(".")[2] == entry.callee:
            if use.kind == "keyword" and argument == entry.parameter:
                return entry
            if use.kind in {"positional", "meaning"} and entry.parameter not in use.now.split(", "):
                return entry
    return None
