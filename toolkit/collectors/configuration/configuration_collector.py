"""Collects the configuration that Hydra would compose for the job."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.unparsed_start import unread_start
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine


@collector(timeout=20, kept=True)
def configuration(launch: Launch, trees: VerlTrees, machine: Machine) -> Configuration | Unknown:
    """Compose verl's configuration and apply the command's overrides."""
    if launch.command is None:
        named = " and ".join(path for path, _ in launch.files)
        where = unread_start(machine, (path for path, _ in launch.files))
        return Absent(
            f"no command that starts verl was found in {named}; "
            f"{where or 'looked for python -m verl... or a *.py with overrides'}"
        )
    from verl_doctor.toolkit.collectors.configuration.hydra_job import composed  # noqa: PLC0415 - only for a command that starts verl

    return composed(
        launch.command, Path(trees.imported.folder), machine, trees.imported.version, launch.settings
    )
