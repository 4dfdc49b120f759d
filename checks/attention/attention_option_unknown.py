"""ATT106: this vLLM has no such option for the attention backend."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.attention._attention_examples import (
    BY_OPTION,
    BY_VARIABLE,
    TWO_ENGINES,
    option,
    variable,
)
from verl_doctor.checks.shared.attention import VISION, how_to_name, location, written
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import VARIABLE, AttentionAsked, RequestedBackend
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("the option exists", (option("FLASH_ATTN"), BY_OPTION)),
        Example("no option is used", (variable("FLASH_ATTN"), BY_VARIABLE)),
        Example(
            "the option is newer", (option("FLASH_ATTN"), BY_VARIABLE), "has no option attention_backend"
        ),
        Example("the vision tower's option is newer", (option("TORCH_SDPA", VISION), TWO_ENGINES), VISION),
    ]


@check("ATT106", phase="engine", examples=_examples)
def attention_option_unknown(requested: AttentionAsked, backends: AttentionBackends) -> Iterator[Finding]:
    """This vLLM has no such option for the attention backend.

    ## Why it matters

    `attention_backend` and `attention_config` are engine arguments since vLLM 0.13.0. verl passes everything
    below `engine_kwargs.vllm` on, and an older vLLM stops with `unrecognized arguments` or `unexpected
    keyword argument`.

    ## How to fix

    For a vLLM without the option, set VLLM_ATTENTION_BACKEND for the workers in the `runtime_env`, because
    Ray workers do not inherit what the driver's shell exports. Or let vLLM choose.
    """
    for place in requested.places:
        if place.by == VARIABLE or place.by in backends.options:
            continue
        backend = None if place.by == VISION else backends.get(place.name.upper())
        usable = backend is not None and backends.is_usable(backend)
        instead = f", or set {how_to_name(backends, place.name.upper())} instead" if usable else ""
        yield Finding(
            f"vLLM {backends.version} has no option {place.by}",
            Evidence(written(place), _wanted(place, backends), backends.read_from),
            location=location(place),
            remedy=f"remove {place.written}" + instead,
            subject=Subject("setting", place.written),
        )


def _wanted(place: RequestedBackend, backends: AttentionBackends) -> str:
    """How to select a backend for the language model in this vLLM."""
    by_variable = backends.variable_is_read and place.by != VISION
    return f"the variable {VARIABLE}" if by_variable else "no such option"
