"""LOAD110: a strategy for reading safetensors is set, but has no effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.loading._loading import LOAD_FORMAT, STRATEGY_KEY, VLLM, job, load_format, word_of
from verl_doctor.checks.shared.configuration import place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.vllm.loading import STRATEGY, VllmLoading
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_BY_DEFAULT = (
    "auto",
    "hf",
    "safetensors",
    "mistral",
)  # formats that vLLM's default loader reads in its own way
_PREFETCH = f"+{STRATEGY_KEY}=prefetch"
_OLD = replace(VLLM, version="0.12.0", strategies=("eager", "lazy"), reads_ahead_on=())


def _irrelevant(configuration: Configuration) -> str | None:
    if configuration.get("actor_rollout_ref.rollout.name") != "vllm":
        return "the rollout does not use vLLM"
    strategy = configuration.get(STRATEGY_KEY)
    return (
        None
        if isinstance(strategy, str) and word_of(configuration, STRATEGY_KEY)
        else f"the job sets no {STRATEGY}"
    )


def _examples() -> list[Example]:
    return [
        Example("no strategy is set", (job(), VLLM)),
        Example("vLLM reads the weights, ahead of time", (job(_PREFETCH, f"{LOAD_FORMAT}=auto"), VLLM)),
        Example(
            "a vLLM without the option, which another rule reports",
            (job(_PREFETCH, f"{LOAD_FORMAT}=auto"), replace(_OLD, strategies=())),
        ),
        Example("the trainer reads the weights", (job(_PREFETCH), VLLM), "vLLM reads no weights"),
        Example(
            "another loader",
            (job(_PREFETCH, f"{LOAD_FORMAT}=runai_streamer"), VLLM),
            "load_format=runai_streamer has a loader of its own",
        ),
        Example(
            "this vLLM does not have the strategy",
            (job(_PREFETCH, f"{LOAD_FORMAT}=auto"), _OLD),
            "vLLM 0.12.0 has no strategy prefetch",
        ),
    ]


@check("LOAD110", severity="warning", applies=_irrelevant, examples=_examples)
def load_strategy_without_effect(configuration: Configuration, vllm: VllmLoading) -> Iterator[Finding]:
    """A strategy for reading safetensors is set, but has no effect.

    ## Why it matters

    `safetensors_load_strategy` belongs to vLLM. In a verl job the trainer reads the weights first and, with
    `load_format=dummy`, alone; transformers has no such strategy. Loaders such as `runai_streamer` read in
    their own way. A release refuses a strategy that it does not have, or, before vLLM 0.24, silently uses
    `lazy`.

    ## How to fix

    Run `verl-doctor warmup` before the job, which helps every reader. `eager` and `prefetch` are for jobs
    whose vLLM reads weights itself.
    """
    word = word_of(configuration, STRATEGY_KEY)
    strategy, format_ = configuration.get(STRATEGY_KEY), load_format(configuration)
    if word is None or not vllm.strategies or not format_:
        return
    if strategy not in vllm.strategies:
        why = f"vLLM {vllm.version} has no strategy {strategy}"
    elif format_.startswith("dummy"):
        why = f"with load_format={format_} vLLM reads no weights: the trainer supplies them"
    elif format_ not in _BY_DEFAULT:
        why = f"load_format={format_} has a loader of its own"
    else:
        return
    yield Finding(
        f"{STRATEGY}={strategy} has no effect: {why}",
        Evidence(word.text, f"one of {', '.join(vllm.strategies)}, if vLLM reads weights", vllm.read_from),
        subject=Subject("setting", STRATEGY_KEY),
        location=place(word),
        remedy=f"remove {word.text}; verl-doctor warmup helps every reader",
    )
