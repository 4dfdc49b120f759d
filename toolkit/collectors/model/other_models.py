"""The models other than the trained one, if the job reads them.

They are the critic's, the reward model's, and what a model takes from another folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_critic
from verl_doctor.toolkit.collectors.launch.launch import Launch, folder_of, may_be_made
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_CRITIC = "critic.model.path"
_REWARD = (
    ("reward.reward_model.enable", "reward.reward_model.model_path"),
    ("reward_model.enable", "reward_model.model.path"),
)
_ADAPTER = "lora_adapter_path"
_NEEDED = "adapter_config.json"  # PEFT takes the folder for a name on the hub without it
_PARTS = (
    ("tokenizer_path", "the tokenizer"),
    ("hf_config_path", "the model's configuration"),
    (_ADAPTER, "the adapter"),
)
_LOCAL = ("/", "~", "./", "../")  # names on the model hub begin with none of these


@dataclass(frozen=True)
class OtherModel:
    """A model's folder: the key naming it, its path as written, why the job reads it, whether it exists.

    `lacks` is a file without which it cannot be read; "" if it has that, or does not exist.
    """

    key: str
    path: str
    reason: str
    exists: bool
    lacks: str = ""


@dataclass(frozen=True)
class OtherModels:
    """The models that the job certainly reads and that are named by a local path."""

    models: tuple[OtherModel, ...]


@collector(kept=True)
def other_models(
    configuration: Configuration, machine: Machine, launch: Launch | Unknown
) -> OtherModels | Unknown:
    """Check whether the folders exist. If the job trains no critic, verl does not read the critic's."""
    if not configuration.program.endswith(("/trainer/main_ppo.py", "/trainer/sft_trainer.py")):
        return Absent("another program than verl's own trainers is started, which may read other models")
    found = []
    is_elsewhere = isinstance(launch, Launch) and launch.is_elsewhere
    for key, reason in _read(configuration):
        path = configuration.get(key)
        if isinstance(path, str) and path.startswith(_LOCAL):
            place = folder_of(launch, machine.cwd) / machine.expanded(path)
            may_change = is_elsewhere or may_be_made(launch, os.path.normpath(place))
            exists = os.path.exists(place)
            is_judged = key.endswith(_ADAPTER) and exists and not may_change
            lacks = _NEEDED if is_judged and not os.path.isfile(place / _NEEDED) else ""
            found.append(OtherModel(key, path, reason, exists or may_change, lacks))
    return OtherModels(tuple(found))


def _read(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Yield the keys of the models that the job needs, and what needs them."""
    if has_critic(configuration):
        by_estimator = configuration.get("critic.enable") is not True
        yield _CRITIC, "adv_estimator gae trains a critic" if by_estimator else "critic.enable is set"
    trained = "actor_rollout_ref.model" if configuration.has("actor_rollout_ref") else "model"
    for model in (trained, *(("critic.model",) if has_critic(configuration) else ())):
        yield from ((f"{model}.{name}", f"verl reads {what} there") for name, what in _PARTS)
    for switch, key in _REWARD:
        if configuration.get(switch) is True:
            yield key, f"{switch} is set"
            return
