"""Collects the keys that verl's configuration classes refuse."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.config_classes import ConfigClasses
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import collector


@collector(kept=True)
def config_classes(configuration: Configuration, trees: VerlTrees) -> ConfigClasses:
    """Look up the classes in verl's sources.

    `_target_` names the class of a section; only some are ever instantiated.
    """
    from verl_doctor.toolkit.collectors.configuration.hydra_fields import (  # noqa: PLC0415 - only where a configuration was composed
        converted_keys,
        declared_types,
        refused_keys,
        retyped,
        unread_keys,
    )
    from verl_doctor.toolkit.collectors.configuration.null_settings import null_settings  # noqa: PLC0415

    tree = trees.imported
    folder = Path(tree.folder)
    changed = tuple(retyped(configuration))
    return ConfigClasses(
        tuple(refused_keys(configuration, folder, tree.module)),
        dict(declared_types(configuration, changed, folder, tree.module)),
        unread_keys(configuration, changed, folder, tree.module),
        dict(declared_types(configuration, converted_keys(configuration, folder), folder, tree.module)),
        dict(null_settings(configuration, folder)),
    )
