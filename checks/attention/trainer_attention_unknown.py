"""ATT110: transformers does not support the attention that the trainer requests."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.vllm.trainer_attention import TrainerAttention
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import closest, listed

_KEY = "actor_rollout_ref.model.override_config.attn_implementation"
_KNOWN = ("eager", "flash_attention_3", "flash_attention_2", "flex_attention", "sdpa")


def _attention(name: str, known: tuple[str, ...] = _KNOWN) -> TrainerAttention:
    return TrainerAttention(
        name=name,
        written=_KEY,
        by_default=False,
        needs="",
        installed=True,
        path="/home/me/run.sh",
        line=7,
        known=known,
    )


def _examples() -> list[Example]:
    return [
        Example("a name that transformers has", (_attention("flex_attention"),)),
        Example("a name that is always valid", (_attention("sdpa", ()),)),
        Example("vLLM's name for an attention", (_attention("FLASH_ATTN"),), "no attention FLASH_ATTN"),
        Example("the version number is missing", (_attention("flash_attention"),), "flash_attention_"),
    ]


@check("ATT110", phase="workers", examples=_examples)
def trainer_attention_unknown(
    attention: TrainerAttention, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """transformers does not support the attention implementation that the trainer requests.

    ## Why it matters

    transformers uses other names than vLLM: `flash_attention_2`, `sdpa`, `eager`, not FLASH_ATTN or
    TORCH_SDPA. Every worker stops with `Specified attn_implementation=... is not supported` when it loads the
    actor.

    ## How to fix

    Use a name that transformers supports, or remove the setting: verl then requests `flash_attention_2`.
    """
    if attention.known and attention.name not in attention.known:
        near = closest(attention.name.lower(), attention.known, 0.5)
        yield Finding(
            f"transformers has no attention {attention.name}" + (f"; it has {near}" if near else ""),
            Evidence(attention.name, f"one of {listed(attention.known, 6)}", attention.written),
            location=Location(attention.path, attention.line or None) if attention.path else None,
            remedy=f"set {attention.written} to {near or 'a name that it has'}, or remove it",
            subject=Subject("attention backend", attention.name),
            **healed("ATT110", _correction(attention, near, configuration)),
        )


def _correction(
    attention: TrainerAttention, near: str, configuration: Configuration | Unknown
) -> Correction | None:
    """The name that is meant; without any, the setting is left out."""
    if isinstance(configuration, Unknown) or configuration.override_of(attention.written) is None:
        return None
    why = f"{near} is transformers' name" if near else ""
    return settings(configuration, {attention.written: near or LEAVE_OUT}, why)
