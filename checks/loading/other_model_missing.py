"""LOAD118: the folder of a model other than the trained one is missing: critic, tokenizer or adapter."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.other_models import OtherModel, OtherModels
from verl_doctor.toolkit.rule import EVERY_JOB, Correction, Evidence, Example, Finding, Subject, check

_KEY = "critic.model.path"
_TOKENIZER = "actor_rollout_ref.model.tokenizer_path"
_ACTOR = "actor_rollout_ref.model.path"
_DEFAULT = "~/models/deepseek-llm-7b-chat"
_ADAPTER = "actor_rollout_ref.model.lora_adapter_path"
_REASON = "adv_estimator gae trains a critic"


def _critic(*, exists: bool, path: str = _DEFAULT) -> OtherModels:
    return OtherModels((OtherModel(key=_KEY, path=path, reason=_REASON, exists=exists),))


def _examples() -> list[Example]:
    return [
        Example("no critic is trained", (*configured(), OtherModels(()))),
        Example("the folder exists", (*configured("algorithm.adv_estimator=gae"), _critic(exists=True))),
        Example(
            "verl's default, which does not exist",
            (*configured("algorithm.adv_estimator=gae"), _critic(exists=False)),
            "critic.model.path is verl's default, but the folder",
        ),
        Example(
            "a tokenizer's folder",
            (
                *configured(f"+{_TOKENIZER}=/gone"),
                OtherModels(
                    (
                        OtherModel(
                            key=_TOKENIZER,
                            path="/gone",
                            reason="verl reads the tokenizer there",
                            exists=False,
                        ),
                    )
                ),
            ),
            "the folder /gone does not exist: verl reads the tokenizer there",
        ),
        Example(
            "a folder without an adapter",
            (
                *configured(f"+{_ADAPTER}=/models/adapter"),
                OtherModels(
                    (
                        OtherModel(
                            key=_ADAPTER,
                            path="/models/adapter",
                            reason="verl reads the adapter there",
                            exists=True,
                            lacks="adapter_config.json",
                        ),
                    )
                ),
            ),
            "the folder /models/adapter has no adapter_config.json: verl reads the adapter there",
        ),
        Example(
            "a misspelt path",
            (
                *configured("algorithm.adv_estimator=gae", f"+{_KEY}=/models/critc"),
                _critic(exists=False, path="/models/critc"),
            ),
            "the folder /models/critc does not exist",
        ),
    ]


@check("LOAD118", requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2")
def other_model_missing(configuration: Configuration, models: OtherModels) -> Iterator[Finding]:
    """The folder of the critic, the reward model, a tokenizer or an adapter does not exist, or lacks it.

    ## Why it matters

    `adv_estimator` is `gae` by default, which trains a critic beside the actor. Its model,
    `critic.model.path`, is not the actor's: verl's default is a folder in your home. If it does not exist, it
    is taken for a name on the model hub (`Repo id must be in the form 'repo_name' or 'namespace/repo_name'`).

    ## How to fix

    Set `critic.model.path`, often to the actor's model, or choose an estimator without a critic:
    `algorithm.adv_estimator=grpo`. For a reward model set its path, or `enable=False`. Correct
    `tokenizer_path`, `hf_config_path` or `lora_adapter_path`, or leave it out.
    """
    for model in models.models:
        if model.exists and not model.lacks:
            continue
        word = configuration.override_of(model.key)
        near = word or configuration.override_of("algorithm.adv_estimator")
        default = "" if word else f"{model.key} is verl's default, but "
        problem = f"has no {model.lacks}" if model.lacks else "does not exist"
        yield Finding(
            f"{default}the folder {model.path} {problem}: {model.reason}",
            Evidence(
                found=word.text if word else f"{model.key}={model.path}",
                wanted="a model's folder",
                read_from=model.key,
            ),
            location=place(near) if near else None,
            remedy=f"set {model.key} to an existing model"
            + (", or algorithm.adv_estimator=grpo" if model.reason.startswith("adv_") else ""),
            subject=Subject("setting", model.key),
            **healed("LOAD118", _correction(configuration, model.key)),
            stops=(EVERY_JOB,),
            phase="validation" if model.key.endswith((".path", ".model_path")) else "workers",
        )


def _correction(configuration: Configuration, key: str) -> Correction | None:
    """Let a critic start from the trained model, and a model have its own tokenizer."""
    if key.endswith(".tokenizer_path"):
        return settings(configuration, {key: LEAVE_OUT}, effect="the model's own tokenizer is used")
    path = configuration.get(_ACTOR)
    if key != _KEY or not isinstance(path, str) or "${" in path:
        return None
    return settings(configuration, {key: path}, effect=f"the critic starts from {path}")
