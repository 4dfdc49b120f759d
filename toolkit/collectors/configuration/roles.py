"""Which models a job has beside the trained one, the sections that it thus reads, and its trackers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.registries import LOGGER

# Programs of verl that read a trainer's configuration, and only generate or evaluate.
_TRAINS_NOTHING = re.compile(r"/verl/.*/main_(?:generation|eval)\w*\.py$")
_SWITCHES = ("enable", "enabled")


EXTERNAL = (
    "actor_rollout_ref.model.external_lib",
    "critic.model.external_lib",
    "actor_rollout_ref.ref.model.external_lib",
)
"""The keys of modules that verl imports first: they may register and prepare anything."""


def has_external_module(configuration: Configuration) -> bool:
    """Return whether the job names a module that verl imports first."""
    return any(isinstance(configuration.get(key), str) and configuration.get(key) for key in EXTERNAL)


def trains(configuration: Configuration) -> bool:
    """Return whether the job's program trains a model."""
    return _TRAINS_NOTHING.search(configuration.program) is None


def trackers_of(configuration: Configuration) -> tuple[str, ...]:
    """Return the trackers to which the job reports, one or a list."""
    named = configuration.get(LOGGER)
    listed = named if isinstance(named, (list, tuple)) else [named]
    return tuple(name for name in listed if isinstance(name, str))


def loads_with_transformers(configuration: Configuration) -> bool:
    """Return whether the trainer loads the model with transformers, unchanged by a module imported first."""
    key = "actor_rollout_ref.actor.strategy" if configuration.has("actor_rollout_ref") else "engine.strategy"
    return (
        configuration.get(key) in ("fsdp", "fsdp2")
        and not has_external_module(configuration)
        and trains(configuration)
    )


def no_update(configuration: Configuration) -> str | None:
    """Return why the job never gets as far as an update; None if it does.

    For example, the job may end after the validation before training.
    """
    only_validates = (
        configuration.get("trainer.val_only") is True
        and configuration.get("trainer.val_before_train") is not False
    )
    return None if trains(configuration) and not only_validates else "the job trains nothing"


def has_critic(configuration: Configuration) -> bool:
    """Return whether the job trains a critic, as `need_critic` decides it (verl/trainer/ppo/utils.py)."""
    enabled = configuration.get("critic.enable")
    return enabled is True or (
        enabled in (None, MISSING) and configuration.get("algorithm.adv_estimator") == "gae"
    )


def has_reference(configuration: Configuration) -> bool:
    """Return whether the job has a reference policy, as `need_reference_policy` decides it."""
    keys = ("actor_rollout_ref.actor.use_kl_loss", "algorithm.use_kl_in_reward")
    return any(configuration.get(key) is True for key in keys)


def has_no_adapter(configuration: Configuration) -> bool:
    """Return whether the job certainly trains no LoRA adapter; with one, the actor serves as reference."""
    model = "actor_rollout_ref.model"
    ranks = (configuration.get(f"{model}.{name}") for name in ("lora_rank", "lora.rank"))
    return all(rank in (0, None, MISSING) for rank in ranks) and (
        configuration.get(f"{model}.lora_adapter_path") in (None, MISSING)
    )


def is_read(configuration: Configuration, key: str) -> bool:
    """Return whether the job may read a key: its section is on, and belongs to a model that the job has."""
    if key.startswith("critic.") and not has_critic(configuration):
        return False
    if key.startswith("actor_rollout_ref.ref.") and not has_reference(configuration):
        return False
    steps = key.split(".")
    for end in range(1, len(steps)):
        section = configuration.get(".".join(steps[:end]))
        is_off = isinstance(section, Mapping) and any(section.get(switch) is False for switch in _SWITCHES)
        if is_off and steps[end] not in _SWITCHES:
            return False
    return True


def validates(configuration: Configuration) -> bool:
    """Return whether a job with rollouts certainly validates: before the first step, or at intervals."""
    every = configuration.number("trainer.test_freq")
    return configuration.get("trainer.val_before_train") is True or (every is not None and every > 0)
