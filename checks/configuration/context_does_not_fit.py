"""CFG123: the rollout's context length does not fit the model, the prompts or the token batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from verl_doctor.checks.shared.configuration import TREE, configured, own_prompts, place
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.demands import Demands
from verl_doctor.toolkit.collectors.model.context import ModelContext
from verl_doctor.toolkit.collectors.model.rendered_prompts import RenderedPrompts
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Phase, Subject, check

_ROLLOUT = "actor_rollout_ref.rollout"
_LENGTH = f"{_ROLLOUT}.max_model_len"
_TOKENS = f"{_ROLLOUT}.max_num_batched_tokens"
_CHUNKED = f"{_ROLLOUT}.enable_chunked_prefill"
_PROMPT = "data.max_prompt_length"
_RESPONSE = "data.max_response_length"
_OVERRIDE = "actor_rollout_ref.model.override_config.max_position_embeddings"
_NEW = Demands(
    dict.fromkeys(
        ("position embeddings", "room to generate", "batched tokens"),
        "/env/verl/workers/rollout/vllm_rollout/vllm_async_server.py:1107",
    )
)
_OLD = Demands(
    dict.fromkeys(
        ("chunked prefill", "model context"),
        "/env/verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py:199",
    )
)
_MODEL = ModelContext(positions=32768, read_from="/models/x/config.json")


def _job(*words: str, mode: str = "async") -> Configuration:
    """A job with prompts of 512 tokens and responses of 1,024."""
    rollout = {
        **TREE["actor_rollout_ref"]["rollout"],
        "mode": mode,
        "max_model_len": None,
        "enable_chunked_prefill": True,
    }
    tree = {
        **TREE,
        "actor_rollout_ref": {**TREE["actor_rollout_ref"], "rollout": rollout},
        "data": {**TREE["data"], "max_response_length": 1024},
    }
    return configured(*words, tree=tree)[0]


class _Broken(NamedTuple):
    demand: str
    message: str
    keys: tuple[str, ...]
    remedy: str
    certain: bool = True
    values: Mapping[str, object] = MappingProxyType({})
    """The nearest settings that fit."""
    why: str = ""
    phase: Phase = "start"


def _irrelevant(configuration: Configuration) -> str | None:
    name = configuration.get(f"{_ROLLOUT}.name")
    return None if name == "vllm" else f"actor_rollout_ref.rollout.name is {name!s}, not vllm"


def _examples() -> list[Example]:
    return [
        Example("verl's defaults", (_job(), _NEW, _MODEL)),
        Example("a short prompt", (_job(f"{_PROMPT}=2"), _NEW, _MODEL)),
        Example("this verl computes the length itself", (_job(f"{_LENGTH}=32"), Demands(), _MODEL)),
        Example(
            "another model is configured", (_job(f"{_LENGTH}=65536", f"+{_OVERRIDE}=65536"), _NEW, _MODEL)
        ),
        Example("chunks of an older verl's rollout", (_job(f"{_RESPONSE}=7680", mode="sync"), _OLD, _MODEL)),
        Example(
            "longer than the model",
            (_job(f"{_LENGTH}=65536"), _NEW, _MODEL),
            "rollout.max_model_len (65536) is more than the 32768 positions of the model",
        ),
        Example(
            "shorter than the prompts",
            (_job(f"{_LENGTH}=256"), _NEW, _MODEL),
            "prompts of 256 tokens or more leave no room to generate",
        ),
        Example(
            "shorter than each prompt",
            (_job(f"{_LENGTH}=32"), _NEW, _MODEL, RenderedPrompts(10, shortest=40)),
            "all have 40 or more",
        ),
        Example(
            "few tokens without chunked prefill",
            (_job(f"{_CHUNKED}=False"), _NEW, _MODEL),
            "max_num_batched_tokens (8192) is less than the context of 32768",
        ),
        Example(
            "too few tokens for an older verl",
            (_job(f"{_RESPONSE}=16384", mode="sync"), _OLD, _MODEL),
            "max_num_batched_tokens (8192) is less than the context of 16896",
        ),
        Example(
            "a longer sequence than the model's",
            (_job(f"{_RESPONSE}=40000", f"{_TOKENS}=65536", mode="sync"), _OLD, _MODEL),
            "40512 tokens, but the model has 32768 positions",
        ),
    ]


@check(
    "CFG123", applies=_irrelevant, requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2"
)
def context_does_not_fit(
    configuration: Configuration,
    demands: Demands,
    model: ModelContext | Unknown,
    prompts: RenderedPrompts | Unknown,
) -> Iterator[Finding]:
    """The rollout's context length does not fit the model, the prompts or the token batches.

    ## Why it matters
    vLLM has one context length, `rollout.max_model_len`, for prompt and response together. verl refuses a
    length beyond the model's positions, and stops at the first prompt that fills it. It also refuses a
    smaller `max_num_batched_tokens`, or fails when it tries to raise it (`Field 'max_num_batched_tokens' is
    frozen`). The engine starts late, so minutes are lost.

    ## How to fix
    Leave `max_model_len` unset, or set it to at least `max_prompt_length + max_response_length`. Where the
    finding names `max_num_batched_tokens`, raise that.
    """
    trains = configuration.get("trainer.val_only") in (False, None, MISSING) and not own_prompts(
        configuration
    )
    shortest = prompts.shortest if trains and not isinstance(prompts, Unknown) else 0
    for broken in _broken(configuration, None if isinstance(model, Unknown) else model, shortest):
        where = demands.place(broken.demand)
        if not where:
            continue
        words = [word for key in broken.keys if (word := configuration.override_of(key)) is not None]
        yield Finding(
            broken.message,
            Evidence(
                found=", ".join(f"{key}={configuration.get(key)}" for key in broken.keys),
                read_from=f"{where}",
            ),
            location=place(words[0]) if words else None,
            remedy=broken.remedy,
            severity=None if broken.certain else "warning",
            subject=Subject("setting", broken.keys[0], broken.demand),
            **healed("CFG123", settings(configuration, broken.values, broken.why) if broken.values else None),
            stops=(EVERY_JOB,) if broken.certain else (),
            phase=broken.phase,
        )


def _broken(configuration: Configuration, model: ModelContext | None, shortest: int) -> Iterator[_Broken]:
    """What does not fit; `shortest` is a number of tokens that each prompt has."""
    length, tokens, chunked = (
        configuration.number(_LENGTH),
        configuration.number(_TOKENS),
        configuration.get(_CHUNKED),
    )
    prompt, response = configuration.number(_PROMPT), configuration.number(_RESPONSE)
    positions = _positions(configuration, model)
    unset = configuration.get(_LENGTH) is None
    if length and positions and length > positions:
        yield _Broken(
            "position embeddings",
            f"rollout.max_model_len ({length:g}) is more than the {positions:g} positions of the model",
            (_LENGTH,),
            f"set {_LENGTH} to {positions:g} or less",
            values={_LENGTH: int(positions)},
            why=f"the model has {positions:.0f} positions",
        )
    if length and prompt and length <= prompt:
        yield _Broken(
            "room to generate",
            (
                f"rollout.max_model_len is {length:g}: prompts of {length:g} tokens or more leave no room "
                "to generate, and stop the job"
            )
            + (f"; all have {shortest} or more" if shortest >= length else ""),
            (_LENGTH, _PROMPT),
            f"set {_LENGTH} to {_PROMPT} + {_RESPONSE}, or leave it unset",
            certain=shortest >= length,
            phase="first batch" if shortest >= length else "start",
            values={_LENGTH: int(prompt + response)} if response else {},
            why=f"{prompt:.0f} + {response or 0:.0f} = {prompt + (response or 0):.0f} tokens",
        )
    context = length or (positions if unset else None)
    if chunked is False and tokens and context and tokens < context:
        yield _Broken(
            "batched tokens",
            (
                f"rollout.max_num_batched_tokens ({tokens:g}) is less than the context of {context:g} "
                "tokens, without chunked prefill"
            ),
            (_TOKENS, _CHUNKED),
            f"set {_CHUNKED}=True, or {_TOKENS} to {context:g}",
            values={_CHUNKED: True},
            why=f"a prompt of {context:.0f} tokens is processed in chunks of {tokens:.0f}",
        )
    if configuration.get(f"{_ROLLOUT}.mode") not in ("sync", MISSING) or not prompt or not response:
        return
    sequence = prompt + response
    context = length or (sequence if unset else None)
    if chunked is True and tokens and context and tokens < context:
        yield _Broken(
            "chunked prefill",
            f"rollout.max_num_batched_tokens ({tokens:g}) is less than the context of {context:g} tokens",
            (_TOKENS, _PROMPT, _RESPONSE),
            f"set {_TOKENS} to {context:g} or more, or {_CHUNKED}=False",
            values={_TOKENS: int(context)},
            why=f"one sequence has {context:.0f} tokens",
        )
    if positions and sequence > positions and model and not model.scaled and not model.nested:
        yield _Broken(
            "model context",
            f"prompt and response have up to {sequence:g} tokens, but the model has {positions:g} positions",
            (_RESPONSE, _PROMPT),
            f"choose {_RESPONSE} so that the two are no more than {positions:g}",
            values={_RESPONSE: int(positions - prompt)} if positions > prompt else {},
            why=f"{prompt:.0f} + {positions - prompt:.0f} = {positions:.0f} positions",
        )


def _positions(configuration: Configuration, model: ModelContext | None) -> float | None:
    """The number that the job sets, otherwise the model's; None if unknown."""
    if configuration.get(_OVERRIDE) is not MISSING:
        return configuration.number(_OVERRIDE)
    return model.positions if model else None
