"""Tests whether a plugin can be imported without harm: a child process imports it first, under a time limit.

An import runs arbitrary code: it may never return, end the process, or leave a thread or a process running. A
plugin that was imported successfully is not tried again until one of its files changes.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import secrets
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import plugin_import
from verl_doctor.toolkit.system.child import ending
from verl_doctor.toolkit.text import listed

LIMIT = 20.0
"""Seconds that the import of a plugin may take; importing torch takes several."""


@dataclass(frozen=True)
class ImportedWell:
    """An entry point whose import ended and left nothing running."""

    value: str


def why_unusable(entry_point: EntryPoint, seconds: float = LIMIT) -> str:
    """Return why the doctor must not import it; "" where a child did, or it raised as any import may.

    `seconds` are left for all trials together.
    """
    limit = max(min(LIMIT, seconds), 1.0)
    well = remembered(
        ImportedWell,
        (entry_point.value, sys.path, sys.version),
        _files(entry_point),
        lambda: _tried(entry_point, limit),
    )
    return well.reason if isinstance(well, Unknown) else ""


def _files(entry_point: EntryPoint) -> list[Path]:
    """Return its module's file or folder, as far as a search finds it without importing anything."""
    top = entry_point.module.partition(".")[0]
    try:
        spec = importlib.machinery.PathFinder.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []


def _tried(entry_point: EntryPoint, limit: float) -> ImportedWell | Unknown:
    token = secrets.token_hex(16)
    command = [
        sys.executable,
        str(Path(plugin_import.__file__)),
        token,
        json.dumps(sys.path),
        entry_point.value,
    ]
    try:
        output = Machine().run(command, timeout=limit, env={"PYTHONDONTWRITEBYTECODE": "1", "HOME": _home()})
    except OSError as error:
        return Unknown(f"its import could not be tried: {error.strerror or error}")
    _, imported, rest = output.stdout.partition(token)
    if not imported:
        if output.code is None:
            return Unknown(f"its import did not end within {limit:.0f} s")
        how = ending(output, limit) if output.code < 0 else f"with status {output.code}"
        return Unknown(f"its import ends the process {how}" if output.code >= 0 else f"at its import {how}")
    try:
        after = json.loads(rest.partition("\n")[0])
        left, replaced = list(map(str, after["left"])), list(map(str, after["replaced"]))
    except (ValueError, KeyError, TypeError):
        return Unknown("its import replaces what Python itself uses to write JSON")
    if left:
        return Unknown(f"its import leaves something running: {listed(left, 3)}")
    if replaced:
        return Unknown(why_replaced(replaced))
    return ImportedWell(entry_point.value)


def why_replaced(names: list[str]) -> str:
    """Return why a plugin that replaces these is not used."""
    return f"its import replaces what verl-doctor itself uses: {listed(names, 3)}"


def _home() -> str:
    """Return the user's home, from which a plugin reads its configuration."""
    return os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises without a home
