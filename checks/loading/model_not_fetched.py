"""LOAD119: a model of the hub is not in the cache, and the job may not access the hub."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.launch_examples import FILES
from verl_doctor.checks.shared.made_first import unless_made
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.model.hub_models import HubModel, HubModels
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_KEY = "actor_rollout_ref.model.path"
_NAME = "Qwen/Qwen2.5-0.5B-Instruct"


def _example(*, cached: bool) -> tuple[object, ...]:
    models = HubModels(
        models=(HubModel(key=_KEY, name=_NAME, cached=cached),),
        offline="HF_HUB_OFFLINE=1",
        cache="/home/me/.cache/huggingface/hub",
    )
    return (*configured(f"{_KEY}={_NAME}"), models)


def _examples() -> list[Example]:
    return [
        Example("the model is in the cache", _example(cached=True)),
        Example(
            "the model is not in the cache",
            _example(cached=False),
            "Qwen/Qwen2.5-0.5B-Instruct is not in the model hub's cache, and HF_HUB_OFFLINE=1",
        ),
        Example(
            "the script fetches it first",
            (
                *_example(cached=False),
                Launch(
                    FILES,
                    command=Command(
                        module="verl.trainer.main_ppo", words=(), path="run.sh", line=2, folder="/job"
                    ),
                    made=(f"/job/{_NAME}",),
                ),
            ),
            "unless a command of the script creates it first",
        ),
    ]


@check("LOAD119", phase="workers", requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2")
def model_not_fetched(
    configuration: Configuration, models: HubModels, launch: Launch | Unknown
) -> Iterator[Finding]:
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
        found = Finding(
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
        folder = "" if isinstance(launch, Unknown) or launch.command is None else launch.command.folder
        yield unless_made(found, f"{folder}/{model.name}" if folder else "", launch)
