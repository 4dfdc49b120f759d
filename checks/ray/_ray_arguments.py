"""Arguments that `ray.init()` refuses when it joins an existing cluster.

ray/_private/worker.py (`When connecting to an existing cluster, ... must not be provided`), the same from Ray
2.10 to 2.60; `labels` since 2.44.
"""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.facts import Unknown

_FOLDERS = ("ray_kwargs.ray_init", "ray_init")
_REFUSED = (
    "num_cpus",
    "num_gpus",
    "resources",
    "labels",
    "object_store_memory",
    "_system_config",
    "_node_name",
)


def refused_arguments(configuration: Configuration | Unknown) -> tuple[OverrideWord, ...]:
    """The words of the launch command that set one of these arguments."""
    if isinstance(configuration, Unknown):
        return ()
    found = (configuration.override_of(f"{folder}.{name}") for folder in _FOLDERS for name in _REFUSED)
    return tuple(
        override
        for override in found
        if override is not None and override.value is not None and not override.conditional
    )
