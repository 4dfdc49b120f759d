"""ATT108: the requested attention backend makes vLLM run its old engine."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.attention._attention_examples import BY_VARIABLE, TWO_ENGINES, variable
from verl_doctor.checks.shared.attention import about, language, location, remedy, written
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import listed


def _examples() -> list[Example]:
    return [
        Example("the V1 engine supports it", (variable("FLASH_ATTN"), TWO_ENGINES)),
        Example("this vLLM has only one engine", (variable("FLASH_ATTN"), BY_VARIABLE)),
        Example("only the V0 engine has the backend", (variable("XFORMERS"), TWO_ENGINES), "old engine"),
        Example("not for this device, which another rule reports", (variable("TORCH_SDPA"), TWO_ENGINES)),
    ]


@check("ATT108", severity="warning", examples=_examples)
def attention_backend_forces_old_engine(
    requested: AttentionAsked, backends: AttentionBackends
) -> Iterator[Finding]:
    """The requested attention backend makes vLLM fall back to its old engine (V0).

    ## Why it matters

    vLLM 0.8 to 0.11.0 have a list of backends for their V1 engine. With any other value of
    VLLM_ATTENTION_BACKEND they fall back to the previous engine, with an easily missed warning. It is slower
    and lacks what verl's asynchronous rollout needs (`Using V1 AsyncLLMEngine, but envs.VLLM_USE_V1=False`).
    With VLLM_USE_V1=1 they stop with NotImplementedError. XFORMERS was in verl's example scripts when only
    the old engine existed.

    ## How to fix

    Unset the variable.
    """
    for place, backend in language(requested, backends):
        supported = not backends.platform or backends.platform in backend.platforms
        if supported and backends.old_engine_unless and backend.name not in backends.old_engine_unless:
            yield Finding(
                f"{backend.name} makes vLLM {backends.version} fall back to its old engine (V0)",
                Evidence(
                    written(place), f"one of {listed(backends.old_engine_unless, 5)}", backends.read_from
                ),
                location=location(place),
                remedy=remedy(place, backends),
                subject=about(place, backend),
            )
