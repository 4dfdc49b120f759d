"""ATT102: the requested attention backend has no implementation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.attention._attention_examples import (
    BY_OPTION,
    BY_VARIABLE,
    TWO_ENGINES,
    option,
    variable,
)
from verl_doctor.checks.shared.attention import about, language, location, remedy, written
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends, Backend
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, check

_FOR_PLUGINS = "CUSTOM"


def _examples() -> list[Example]:
    return [
        Example("the class exists", (variable("FLASH_ATTN"), BY_VARIABLE)),
        Example("before there was a registry", (variable("FLASH_ATTN"), TWO_ENGINES)),
        Example(
            "the name is valid for the vision tower",
            (option("TORCH_SDPA", "mm_encoder_attn_backend"), BY_OPTION),
        ),
        Example("a name without a class", (variable("TORCH_SDPA"), BY_VARIABLE), "no implementation"),
        Example("its module does not exist", (option("NO_ATTENTION"), BY_OPTION), "does not exist"),
        Example(
            "vLLM for CPUs ignores the name",
            (variable("TORCH_SDPA"), replace(BY_VARIABLE, platform="cpu")),
            "on the CPU",
        ),
        Example("a place for plugins", (variable("CUSTOM"), BY_VARIABLE), "unless a plugin registers one"),
    ]


@check("ATT102", phase="engine", examples=_examples)
def attention_backend_without_implementation(
    requested: AttentionAsked, backends: AttentionBackends, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The requested attention backend has no implementation.

    ## Why it matters

    vLLM's enumeration contains names without a class: TORCH_SDPA marks the attention of vision towers, CUSTOM
    is reserved for plugins, NO_ATTENTION names a module that does not exist. The name is accepted, and the
    engine then stops with `Backend TORCH_SDPA must be registered before use` or an ImportError.

    ## How to fix

    Let vLLM choose. For scaled dot-product attention in the vision tower, vLLM 0.11.1 and later accept
    `mm_encoder_attn_backend=TORCH_SDPA`.
    """
    for place, backend in language(requested, backends):
        why = _why(backend) if backends.registry else ""
        if why:
            but = _but(backend, backends)
            yield Finding(
                f"{backend.name} has no implementation in vLLM {backends.version}: {why}{but}",
                Evidence(written(place), "a backend with a class", backends.read_from),
                location=location(place),
                remedy=remedy(place, backends),
                severity="warning" if but else "error",
                subject=about(place, backend),
                **healed("ATT102", _correction(configuration, about(place, backend).detail)),
            )


def _but(backend: Backend, backends: AttentionBackends) -> str:
    """Why the engine may start anyway; "" if it will not."""
    if backends.platform == "cpu":
        return "; on the CPU vLLM uses another"
    return ", unless a plugin registers one" if backend.name == _FOR_PLUGINS else ""


def _why(backend: Backend) -> str:
    if backend.path:
        return backend.problem
    same = f" (in Python it is {backend.alias_of})" if backend.alias_of else ""
    return f"its class path is empty{same}"


def _correction(configuration: Configuration | Unknown, key: str) -> Correction | None:
    """Remove the setting, so that vLLM chooses."""
    if isinstance(configuration, Unknown) or configuration.override_of(key) is None:
        return None
    return settings(configuration, {key: LEAVE_OUT}, "vLLM chooses the backend")
