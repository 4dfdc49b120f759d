"""ATT109: the attention that the trainer asks transformers for is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.vllm.trainer_attention import TrainerAttention
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Location, Subject, check

_KEY = "actor_rollout_ref.model.override_config.attn_implementation"
_PADDING = "actor_rollout_ref.model.use_remove_padding"
_DEFAULT = "/env/verl/workers/config/model.py"
_MISSING = TrainerAttention(
    "flash_attention_2",
    _DEFAULT,
    by_default=True,
    needs="flash_attn",
    installed=False,
    path=_DEFAULT,
    line=185,
)


@check(
    "ATT109",
    phase="workers",
    examples=lambda: [
        Example("flash_attn is installed", (replace(_MISSING, installed=True),)),
        Example(
            "the command asks for what torch has itself",
            (TrainerAttention("sdpa", _KEY, by_default=False, needs="", installed=True),),
        ),
        Example("verl's default is not installed", (_MISSING,), "by default"),
        Example(
            "the command asks for it",
            (replace(_MISSING, written=_KEY, by_default=False, path="/home/me/run.sh", line=7),),
            "flash_attention_2",
        ),
    ],
)
def flash_attention_not_installed(
    attention: TrainerAttention, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The attention implementation that the trainer requests from transformers is not installed.

    ## Why it matters

    verl loads the model that is trained with `flash_attention_2` unless it is given another address, and imports `flash_attn` where
    padding is removed. vLLM brings its own copy of these kernels, so that the rollout works without the package and only the
    trainer fails: `FlashAttention2 has been toggled on, but it cannot be used`, or `No module named 'flash_attn'`.

    ## How to fix

    Install a wheel of `flash-attn` that was built for this torch, CUDA and Python; without a fitting one, pip compiles for an
    hour. Or train without it: slower, with `attn_implementation=sdpa` and `use_remove_padding=False`.
    """
    if attention.installed:
        return
    how = "verl asks by default for" if attention.by_default else "the command asks for"
    yield Finding(
        f"{how} {attention.name}, and {attention.needs} is not installed",
        Evidence(f"{attention.name} ({attention.written})", f"a module {attention.needs}", attention.written),
        location=Location(attention.path, attention.line or None) if attention.path else None,
        remedy=(
            "install flash-attn for this torch and CUDA, or set "
            f"+{_KEY}=sdpa and actor_rollout_ref.model.use_remove_padding=False"
        ),
        subject=Subject("attention backend", attention.name),
        **healed("ATT109", _correction(configuration)),
    )


def _correction(there: Configuration | Unknown) -> Correction | None:
    """Torch's own attention, for rows with their padding: the same numbers, more slowly."""
    if isinstance(there, Unknown):
        return None
    return settings(
        there, {_KEY: "sdpa", _PADDING: False}, "torch's own attention needs no package; it is slower"
    )
