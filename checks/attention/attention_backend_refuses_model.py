"""ATT104: the requested attention backend does not support the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.attention._attention_examples import (
    BY_OPTION,
    BY_VARIABLE,
    FLASHINFER,
    option,
    variable,
)
from verl_doctor.checks.shared.attention import about, language, location, refusal, remedy, written
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import listed

_LLAMA = Model(
    folder="/models/llama",
    named_by="--model",
    architectures=("LlamaForCausalLM",),
    model_type="llama",
    head_size=128,
)
_PHI = replace(_LLAMA, folder="/models/phi-2", head_size=80)
_DEEPSEEK = replace(_LLAMA, folder="/models/deepseek", head_size=0, mla=True)
_FOR_PHI = replace(
    BY_OPTION, head_size=80, backends=(replace(FLASHINFER, supports_head_size=False), *BY_OPTION.backends[2:])
)


def unknown_model(model: Model) -> str | None:
    """Why the model cannot be compared with what a backend supports."""
    return None if model.is_described else f"the configuration of {model.folder} could not be read"


def _examples() -> list[Example]:
    return [
        Example("the head size is on its list", (variable("FLASHINFER"), BY_VARIABLE, _LLAMA)),
        Example("latent attention for a model that has it", (variable("TRITON_MLA"), BY_VARIABLE, _DEEPSEEK)),
        Example("the head size is not on its list", (option("FLASHINFER"), _FOR_PHI, _PHI), "head size 80"),
        Example(
            "latent attention for a model without it", (variable("TRITON_MLA"), BY_VARIABLE, _LLAMA), "latent"
        ),
    ]


@check("ATT104", phase="engine", requires={"ATT102"}, applies=unknown_model, examples=_examples)
def attention_backend_refuses_model(
    requested: AttentionAsked, backends: AttentionBackends, model: Model
) -> Iterator[Finding]:
    """The requested attention backend does not support this model.

    ## Why it matters

    Each backend supports certain attention head sizes, and either multi-head latent attention (DeepSeek and
    related models) or all others. vLLM checks this when the engine starts and stops with `head_size not
    supported` or `non-MLA not supported`, before any training.

    ## How to fix

    Let vLLM choose: it uses the first backend that supports the model. The head size is `head_dim` in
    `config.json`, or `hidden_size` divided by `num_attention_heads`.
    """
    for place, backend in language(requested, backends):
        why = "" if model.mla else refusal(backend, backends)
        if why and (not backends.platform or backends.platform in backend.platforms):
            wanted = f"head size {listed(map(str, backend.head_sizes), 12)}" if backend.head_sizes else ""
            yield Finding(
                f"{backend.name} of vLLM {backends.version} does not support this model: {why}",
                Evidence(written(place), wanted, f"{model.folder}/config.json, {backend.path}"),
                location=location(place),
                remedy=remedy(place, backends),
                subject=about(place, backend),
            )
