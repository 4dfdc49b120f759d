"""ATT101: the requested attention backend does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.attention._attention_examples import (
    BY_OPTION,
    BY_VARIABLE,
    TWO_ENGINES,
    option,
    variable,
)
from verl_doctor.checks.shared.attention import about, choices, heeded, location, remedy, written
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import VARIABLE, AttentionAsked, RequestedBackend
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import closest, listed


def _examples() -> list[Example]:
    return [
        Example("the name exists", (variable("FLASH_ATTN"), BY_VARIABLE)),
        Example("an option in lower case", (option("flash_attn"), BY_OPTION)),
        Example("a word that means no choice", (option("auto"), BY_OPTION)),
        Example("this vLLM does not read the variable", (variable("XFORMERS"), BY_OPTION)),
        Example("the name was removed", (variable("XFORMERS"), BY_VARIABLE), "no attention backend XFORMERS"),
        Example("the variable in lower case", (variable("flash_attn"), BY_VARIABLE), "write FLASH_ATTN"),
        Example("a misspelt option", (option("FLASH_ATTENTION"), BY_OPTION), "FLASH_ATTENTION"),
        Example("an old vLLM ignores unknown names", (variable("SDPA"), TWO_ENGINES), "ignores"),
    ]


@check("ATT101", phase="engine", examples=_examples)
def attention_backend_unknown(requested: AttentionAsked, backends: AttentionBackends) -> Iterator[Finding]:
    """The requested attention backend does not exist in this vLLM.

    ## Why it matters

    Backends come and go between releases: XFORMERS and the names that end in `_VLLM_V1` were removed,
    FLASH_ATTN_MLA and others are new. vLLM 0.10.1 and later stop with `Invalid attention backend`, `Unknown
    attention backend` or `Invalid value` when the engine starts. Older releases ignore the name, and may run
    their old engine because of it.

    ## How to fix

    Do not set a backend unless you have measured that it helps: vLLM chooses the best one for the GPU, the
    model and the data type. Otherwise use a name that this release has.
    """
    for place, name in heeded(requested, backends):
        if backends.get(name) is not None:
            continue
        raises = place.by != VARIABLE or backends.variable_is_checked
        yield Finding(
            f"vLLM {backends.version} has no attention backend {place.name}"
            + (_nearest(name, backends) if raises else "; it ignores the name" + _engine(place, backends)),
            Evidence(written(place), f"one of {listed(choices(backends), 5)}", backends.read_from),
            location=location(place),
            remedy=remedy(place, backends),
            severity="error" if raises else "warning",
            subject=about(place),
        )


def _nearest(name: str, backends: AttentionBackends) -> str:
    names = [backend.name for backend in backends.backends]
    found = closest(name.upper().removesuffix("_VLLM_V1"), names)
    return f"; write {found}" if found else ""


def _engine(place: RequestedBackend, backends: AttentionBackends) -> str:
    old = backends.old_engine_unless and place.name not in backends.old_engine_unless
    return " and runs its old engine (V0), or stops if VLLM_USE_V1=1" if old else ""
