"""LOAD119: a model of the hub is not in the cache, and the job may not access the hub."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.hub_models import HubModel, HubModels
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_KEY = "actor_rollout_ref.model.path"
_NAME = "Qwen/Qwen2.5-0.5B-Instruct"


def _example(*, cached: bool) -> tuple[object, ...]:
    models = HubModels(
        (HubModel(_KEY, _NAME, cached),), "HF_HUB_OFFLINE=1", "/home/me/.cache/huggingface/hub"
    )
    return (*configured(f"{_KEY}={_NAME}"), models)


@check(
    "LOAD119",
    phase="workers",
    requires=("CFG101", "CFG102", "CFG103"),
    examples=lambda: [
        Example("the model is in the cache", _example(cached=True)),
        Example("the model is not in the cache", _example(cached=False), "Qwen/Qwen2.5-0.5B-Instruct is not in the model hub's cache, and HF_HUB_OFFLINE=1"),
    ],
    since="0.2",
)  # fmt: skip
def model_not_fetched(configuration: Configuration, models: HubModels) -> Iterator[Finding]:
    """A model of the hub is not in the cache, and the job may not access the hub.

    ## Why it matters

    `HF_HUB_OFFLINE=1` (or `TRANSFORMERS_OFFLINE=1`) keeps the job off the network. If the model is not in the
    node's cache, the first worker that loads it raises `LocalEntryNotFoundError` or `OfflineModeIsEnabled`.

    ## How to fix

    On a machine with network access, run `hf download NAME` into the cache that the job reads (HF_HOME), or
    set the path to a model's folder.
    """
    for model in models.models:
        if model.cached:
            continue
        word = configuration.override_of(model.key)
        yield Finding(
            f"{model.name} is not in the model hub's cache, and {models.offline} keeps the job from the hub",
            Evidence(
                found=f"nothing of {model.name} in {models.cache}",
                wanted="a cached model, or a folder",
                read_from=f"{models.path}:{models.line}" if models.path else models.cache,
            ),
            location=place(word) if word else None,
            remedy=f"run HF_HUB_OFFLINE=0 hf download {model.name}",
            subject=Subject("setting", model.key),
            stops=(EVERY_JOB,),
        )
