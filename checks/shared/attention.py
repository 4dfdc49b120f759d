"""Shared by the rules about attention backends: settings that count, and selecting one in this vLLM."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends, Backend
from verl_doctor.toolkit.collectors.vllm.attention_requested import VARIABLE, AttentionAsked, RequestedBackend
from verl_doctor.toolkit.rule import Location, Subject
from verl_doctor.toolkit.text import listed

VISION = "mm_encoder_attn_backend"
"""The option for the vision tower only, which accepts other names."""

_SHOWN = 5
_SPECIAL = ("MLA", "MSA", "SPARSE")
_ENGINE = "actor_rollout_ref.rollout.engine_kwargs.vllm"


def heeded(requested: AttentionAsked, backends: AttentionBackends) -> Iterator[tuple[RequestedBackend, str]]:
    """Yield the settings that this vLLM reads, with the name it looks up: options converted to upper case."""
    for place in requested.places:
        if place.by == VARIABLE and backends.variable_is_read:
            yield place, place.name
        elif place.by in backends.options and place.name.lower() != backends.automatic:
            yield place, place.name.upper()


def language(
    requested: AttentionAsked, backends: AttentionBackends
) -> Iterator[tuple[RequestedBackend, Backend]]:
    """Yield the settings in effect that name an existing backend for the language model."""
    for place, name in heeded(requested, backends):
        backend = backends.get(name)
        if backend is not None and place.by != VISION:
            yield place, backend


def written(place: RequestedBackend) -> str:
    """The setting as the user wrote it: `VLLM_ATTENTION_BACKEND=XFORMERS`."""
    return f"{place.written}={place.name}"


def about(place: RequestedBackend, backend: Backend | None = None) -> Subject:
    """The backend that a setting names, in vLLM's spelling if vLLM has it, and the setting."""
    return Subject("attention backend", backend.name if backend else place.name, place.written)


def location(place: RequestedBackend) -> Location | None:
    """Where the setting is written; None for a variable of this shell."""
    return Location(place.path, place.line or None) if place.path else None


def remedy(place: RequestedBackend, backends: AttentionBackends) -> str:
    """Let vLLM choose, or name a usable backend."""
    away = f"unset {VARIABLE}" if place.by == VARIABLE else f"remove {place.written}"
    names = choices(backends)
    one_of = "one of " if len(names) > 1 else ""
    named = f", or use {one_of}{listed(names, _SHOWN)}" if names else ""
    return f"{away}, so that vLLM chooses a backend itself{named}"


def choices(backends: AttentionBackends) -> list[str]:
    """Usable names, without those for latent attention.

    They are those for CUDA if the device is unknown, and only those that a known model supports.
    """
    device = backends.platform or "cuda"
    return [
        backend.name
        for backend in backends.backends
        if backends.is_usable(backend)
        and device in backend.platforms
        and not any(part in backend.name for part in _SPECIAL)
        and not refusal(backend, backends)
    ]


def refusal(backend: Backend, backends: AttentionBackends) -> str:
    """Why a backend refuses a model without latent attention; "" if it does not, or if that is unknown."""
    if backend.is_mla:
        return "it is for multi-head latent attention, which the model does not have"
    if backend.is_sparse:
        return "it is for sparse attention, which the model does not have"
    if backend.supports_head_size is False and backends.head_size:
        return f"it has no head size {backends.head_size}"
    return ""


def how_to_name(backends: AttentionBackends, name: str) -> str:
    """How to select a backend in this vLLM."""
    if "attention_backend" in backends.options:
        return f"+{_ENGINE}.attention_backend={name}"
    return f"{VARIABLE}={name}"
