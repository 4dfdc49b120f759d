"""Models that the job names by model hub name, and whether the cache has them while the job is offline."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_critic
from verl_doctor.toolkit.collectors.launch.launch import Launch, changes_folder, folder_of
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_MODELS = ("actor_rollout_ref.model.path", "model.path", "model.partial_pretrain")
_CRITIC = "critic.model.path"
_NAME = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*")  # without an owner: one of the oldest, such as gpt2
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_ON = frozenset({"1", "ON", "YES", "TRUE"})  # huggingface_hub/constants.py
_CACHE = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
_OTHER_HUBS = ("VERL_USE_MODELSCOPE", "VLLM_USE_MODELSCOPE")


@dataclass(frozen=True)
class HubModel:
    """The key that names a model, its name on the hub, and whether some of its files are in the cache."""

    key: str
    name: str
    cached: bool


@dataclass(frozen=True)
class HubModels:
    """The models that the job names by their model hub name, and what keeps the job offline.

    `offline` is the variable that keeps the job offline, its value and, if a launch file sets it, its place.
    `cache` is a folder.
    """

    models: tuple[HubModel, ...]
    offline: str
    cache: str
    path: str = ""
    line: int = 0


@collector()
def hub_models(
    configuration: Configuration, job: JobVariables, machine: Machine, launch: Launch | Unknown
) -> HubModels | Unknown:
    """Search the job's cache, whose location its variables may change."""
    offline = next((name for name in _OFFLINE if job.get(name).upper() in _ON), "")
    if not offline:
        return Absent("the job may query the model hub")
    if any(job.has(name) for name in _OTHER_HUBS) or any(name in job.undetermined for name in _CACHE):
        return Absent("the job's cache of models is not known")
    cache = _cache(machine, job)
    here = isinstance(launch, Unknown) or not (launch.is_elsewhere or changes_folder(launch))
    folder = folder_of(launch, machine.cwd)
    found = tuple(
        HubModel(key, name, cached=_is_cached(cache, name))
        for key, name in _named(configuration)
        if not os.path.exists(folder / name) and ("/" in name or here)
    )
    path, line = job.places.get(offline, ("", 0))
    return HubModels(found, f"{offline}={job.get(offline)}", str(cache), path, line)


def _named(configuration: Configuration) -> Iterator[tuple[str, str]]:
    keys = [*_MODELS, *((_CRITIC,) if has_critic(configuration) else ())]
    for key in keys:
        value = configuration.get(key)
        if isinstance(value, str) and _NAME.fullmatch(value):
            yield key, value


def _cache(machine: Machine, job: JobVariables) -> Path:
    """Return the folder of huggingface_hub's cache, as its constants.py computes it."""
    given = replace(machine, environ={**machine.environ, **job.values})
    home = job.get("HF_HOME") or f"{job.get('XDG_CACHE_HOME') or given.home + '/.cache'}/huggingface"
    named = job.get("HF_HUB_CACHE") or job.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return machine.cwd / given.expanded(named)


def _is_cached(cache: Path, name: str) -> bool:
    """Return whether the cache has a snapshot of the model, complete or not.

    True if that cannot be determined.
    """
    try:
        return bool(os.listdir(cache / f"models--{name.replace('/', '--')}" / "snapshots"))  # noqa: PTH208
    except FileNotFoundError:
        return False
    except OSError:
        return True
