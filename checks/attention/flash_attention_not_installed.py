"""ATT109: the attention implementation that the trainer requests is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.checks.shared.made_first import unless_installed
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.vllm.trainer_attention import TrainerAttention
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Location, Subject, check

_MODEL, _CRITIC = "actor_rollout_ref.model", "critic.model"
_TUNED = "model"  # the trained model of a job that only tunes
_NAME, _PADDING = "override_config.attn_implementation", "use_remove_padding"
_KEY = f"{_MODEL}.{_NAME}"
_DEFAULT = "/env/verl/workers/config/model.py"
CRITIC_FIX = "critic-attention"
_MISSING = TrainerAttention(
    name="flash_attention_2",
    written=_DEFAULT,
    by_default=True,
    needs="flash_attn",
    installed=False,
    path=_DEFAULT,
    line=185,
)


def _examples() -> list[Example]:
    return [
        Example("flash_attn is installed", (replace(_MISSING, installed=True),)),
        Example(
            "the command requests torch's own attention",
            (TrainerAttention(name="sdpa", written=_KEY, by_default=False, needs="", installed=True),),
        ),
        Example("verl's default is not installed", (_MISSING,), "by default"),
        Example(
            "the command requests FlashAttention",
            (replace(_MISSING, written=_KEY, by_default=False, path="/home/me/run.sh", line=7),),
            "flash_attention_2",
        ),
        Example(
            "a fine-tuning job requests it",
            (
                replace(_MISSING, written=f"{_TUNED}.{_NAME}", by_default=False),
                *configured(tree={_TUNED: {"path": "m"}}),
            ),
            "flash_attention_2",
        ),
        Example(
            "the critic was forgotten",
            (
                TrainerAttention(
                    name="sdpa", written=_KEY, by_default=False, needs="", installed=True, critic=_MISSING
                ),
            ),
            "for the critic",
        ),
        Example(
            "the critic's is fixed in verl's code",
            (
                TrainerAttention(
                    name="sdpa",
                    written=_KEY,
                    by_default=False,
                    needs="",
                    installed=True,
                    critic=replace(_MISSING, fixed=True),
                ),
            ),
            "whatever the settings are",
        ),
    ]


@check("ATT109", phase="workers", requires=("CFG104",), examples=_examples)
def flash_attention_not_installed(
    attention: TrainerAttention, configuration: Configuration | Unknown, launch: Launch | Unknown
) -> Iterator[Finding]:
    """The attention implementation that the trainer requests is not installed.

    ## Why it matters

    verl loads the trained model with `flash_attention_2` unless configured otherwise, and imports
    `flash_attn` when it removes padding. vLLM ships its own copy of these kernels, so the rollout works
    without the package and only the trainer fails: `FlashAttention2 has been toggled on, but it cannot be
    used`, or `No module named 'flash_attn'`.

    ## How to fix

    Install a wheel of `flash-attn` that was built for this torch, CUDA and Python; without a matching one,
    pip compiles for an hour. Or train without it, more slowly, with `attn_implementation=sdpa` and
    `use_remove_padding=False`. The critic is a separate model with its own settings,
    which some releases of verl do not read: `load_valuehead_model` names `flash_attention_2` itself, and
    transformers then reports that `trl` is missing. The fix lets it read the setting.
    """
    critic = attention.critic
    lacking = critic if attention.installed else attention
    if lacking is None or lacking.installed:
        return
    if lacking is critic and lacking.fixed:
        found = Finding(
            (
                f"verl loads the critic with {lacking.name} whatever the settings are, but {lacking.needs} "
                "is not installed"
            ),
            Evidence(f"attn_implementation={lacking.name!r}", f"a module {lacking.needs}", lacking.written),
            location=Location(lacking.path, lacking.line or None),
            remedy="install flash-attn for this torch and CUDA, or let verl read the critic's setting",
            subject=Subject("attention backend", lacking.name, f"{_CRITIC}.{_NAME}"),
            fix=CRITIC_FIX,
        )
        yield unless_installed(found, launch)
        return
    how = "by default verl requests" if lacking.by_default else "the command requests"
    whose = " for the critic" if lacking is critic else ""
    model = _CRITIC if lacking is critic else _trained(configuration, attention)
    found = Finding(
        f"{how} {lacking.name}{whose}, but {lacking.needs} is not installed",
        Evidence(f"{lacking.name} ({lacking.written})", f"a module {lacking.needs}", lacking.written),
        location=Location(lacking.path, lacking.line or None) if lacking.path else None,
        remedy=(
            f"install flash-attn for this torch and CUDA, or set +{model}.{_NAME}=sdpa and "
            f"{model}.{_PADDING}=False"
        ),
        subject=Subject("attention backend", lacking.name, f"{_CRITIC}.{_NAME}" if lacking is critic else ""),
        **healed("ATT109", _correction(configuration, attention)),
    )
    yield unless_installed(found, launch)


def _correction(configuration: Configuration | Unknown, attention: TrainerAttention) -> Correction | None:
    """For models without the package, use torch's own attention on padded rows: same numbers, slower."""
    if isinstance(configuration, Unknown):
        return None
    lacking = [_trained(configuration, attention)] if not attention.installed else []
    if attention.critic is not None and not attention.critic.installed:
        lacking.append(_CRITIC)
    values: dict[str, object] = {}
    for model in lacking:
        values[f"{model}.{_NAME}"] = "sdpa"
        if model != _CRITIC or configuration.has(f"{model}.{_PADDING}"):
            values[f"{model}.{_PADDING}"] = False
    return settings(configuration, values, "torch's own attention needs no package; it is slower")


def _trained(configuration: Configuration | Unknown, attention: TrainerAttention) -> str:
    """The section of the trained model: fine-tuning has it at the top."""
    if not attention.by_default:
        return attention.written.removesuffix(f".{_NAME}")
    return _MODEL if isinstance(configuration, Unknown) or configuration.has(_MODEL) else _TUNED
