"""LOAD103: this vLLM has no implementation of the model's architecture."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.support import VllmSupport
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_MODEL = Model(
    folder="/models/new",
    named_by="--model",
    architectures=("BrandNewForCausalLM",),
    model_type="brand_new",
    head_size=128,
)
_REGISTRY = "/env/vllm/model_executor/models/registry.py"


def _vllm(*, known: bool = False, removed_after: str = "", falls_back: bool = True) -> VllmSupport:
    return VllmSupport(
        version="0.24.0", known=known, removed_after=removed_after, falls_back=falls_back, read_from=_REGISTRY
    )


def _examples() -> list[Example]:
    return [
        Example("vLLM has the architecture", (_MODEL, _vllm(known=True))),
        Example("vLLM would run the implementation of transformers", (_MODEL, _vllm()), "falls back"),
        Example("vLLM removed the architecture", (_MODEL, _vllm(removed_after="0.23.0")), "until 0.23.0"),
        Example("no engine can run the model", (_MODEL, _vllm(falls_back=False)), "BrandNewForCausalLM"),
    ]


@check("LOAD103", phase="engine", requires={"LOAD101"}, examples=_examples)
def model_architecture_unknown(model: Model, support: VllmSupport) -> Iterator[Finding]:
    """This vLLM has no implementation of the model's architecture.

    ## Why it matters

    The rollout's engine stops with `Model architectures [...] are not supported for now`. For an unknown
    architecture, vLLM falls back to the implementation in transformers if that supports it. That is slower,
    and verl, which sends new weights after each step, must find the same parameter names.

    ## How to fix

    Install a vLLM that has the architecture; `verl-doctor matrix` shows which ones fit this verl.
    """
    if support.known:
        return
    names = ", ".join(model.architectures)
    if support.removed_after:
        what = f"no longer has {names}, which it had until {support.removed_after}"
    elif support.falls_back:
        what = f"has no {names} of its own; it falls back to that of transformers if possible"
    else:
        what = f"has no {names}, and neither has transformers"
        what += f"; did you mean {support.nearest}?" if support.nearest else ""
    yield Finding(
        f"vLLM {support.version} {what}",
        Evidence(names, "an architecture of its registry", support.read_from),
        subject=Subject("model", model.folder),
        location=Location(f"{model.folder}/config.json"),
        remedy="install a vLLM that has it; verl-doctor matrix shows which ones fit this verl"
        if support.falls_back or support.removed_after or not support.nearest
        else f"set architectures to {support.nearest} in config.json, if that is the model",
        severity="warning" if support.falls_back and not support.removed_after else "error",
    )
