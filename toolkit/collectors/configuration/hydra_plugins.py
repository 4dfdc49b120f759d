"""Where options of Hydra's own groups come from: Hydra or a plugin in any folder of the job's path."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.import_path import adds_folder, pth_lines, sees_system
from verl_doctor.toolkit.collectors.launch.launch import Command, Setting
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.source import read

_PLUGINS = "hydra_plugins"
_EXTERNAL = "VERL_USE_EXTERNAL_MODULES"  # modules that verl imports, which may register options
_IMPORTED = re.compile(r"import[ \t]+(\w+)")


def own_of_hydra(
    site: Path, command: Command, machine: Machine, settings: Sequence[Setting] = ()
) -> Path | None:
    """Return the folder of the options that Hydra has itself.

    The result is None if it is not beside verl in `site`, or if there may be plugins.
    """
    own = site / "hydra" / "conf"
    given = [setting for setting in settings if setting.name in ("PYTHONPATH", _EXTERNAL)]
    if (
        not os.path.isdir(own)
        or any(setting.name == _EXTERNAL for setting in given)
        or machine.environ.get(_EXTERNAL)
    ):
        return None
    texts = [
        machine.environ.get("PYTHONPATH", ""),
        *(setting.value for setting in given if not setting.removed),
    ]
    if any(text is None or "$" in text for text in texts):
        return None
    start = Path(command.folder or machine.cwd)
    path = [start / entry for text in texts for entry in (text or "").split(os.pathsep)]
    start_folders = (
        machine.cwd,
        start,
        start / Path(command.path).parent,
        start / Path(command.module).parent,
    )
    sites = (site, _of_user(site, machine))
    added = [_added_by(folder) for folder in sites]
    if any(folders is None for folders in added) or sees_system(site.parent.parent.parent):
        return None
    searched = (*sites, *start_folders, *path, *(folder for folders in added for folder in folders or ()))
    return None if any(os.path.lexists(folder / _PLUGINS) for folder in searched) else own


def _of_user(site: Path, machine: Machine) -> Path:
    """Return the packages that the user has installed outside the environment."""
    base = machine.environ.get("PYTHONUSERBASE") or Path(machine.environ.get("HOME", "/"), ".local")
    return Path(base, "lib", site.parent.name, "site-packages")


def _added_by(site: Path) -> list[Path] | None:
    """Return the folders that `.pth` files add to the path.

    The result is None if one of the files runs what may bring plugins, as editable installs do.
    """
    found: list[Path] = []
    for line in pth_lines(site):
        if adds_folder(line):
            found.append(site / line)
        elif _PLUGINS in line or any(_may_bring(site, name) for name in _IMPORTED.findall(line)):
            return None
    return found


def _may_bring(site: Path, module: str) -> bool:
    """Return whether a module imported by a `.pth` file may bring plugins: it names any or has no source."""
    if module in sys.stdlib_module_names:
        return False
    places = (site / f"{module}.py", site / module / "__init__.py")
    text = next((read(place) for place in places if os.path.isfile(place)), None)
    return not isinstance(text, bytes) or _PLUGINS.encode() in text
