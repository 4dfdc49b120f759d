"""The user's own configuration of pip and uv, for an installer that runs with a private home."""

from __future__ import annotations

import configparser
import io
import os
import re
from pathlib import Path

from verl_doctor.toolkit.machine import Machine

# Without a network it must fail soon.
_UV_SOON = {"UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"}
_HOME = re.compile(r"(?<![^\s=])~/")


def as_the_user(machine: Machine, folder: Path) -> dict[str, str]:
    """Give the installer the user's own configuration, and keep it from writing to the home folder.

    The configuration names the index.

    HOME stays the private one that every child gets. `folder` is for files needed only by this query.
    """
    environ = {
        "NO_COLOR": "1",
        "PIP_NO_CACHE_DIR": "1",
        "UV_NO_CACHE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **_UV_SOON,
    }
    if named := machine.environ.get("UV_CONFIG_FILE"):
        environ["UV_CONFIG_FILE"] = str(machine.cwd / named)
    home = Path(machine.home or "/")
    config = machine.cwd / (machine.environ.get("XDG_CONFIG_HOME") or home / ".config")
    environ["XDG_CONFIG_HOME"] = str(config)
    data = machine.cwd / (machine.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    for variable, path in (
        ("NETRC", home / ".netrc"),
        ("UV_CREDENTIALS_DIR", data / "uv" / "credentials"),
    ):
        if not machine.environ.get(variable) and os.path.exists(path):
            environ[variable] = str(path)
    if (pip := _pip_config(machine, home, config, folder)) is not None:
        environ["PIP_CONFIG_FILE"] = pip
    return environ


def _pip_config(machine: Machine, home: Path, config: Path, folder: Path) -> str | None:
    """Write the user's pip configuration to one file, with `~` as the user's home; None if none exists.

    pip reads the file in PIP_CONFIG_FILE instead of the user's two; it always reads those of the system and
    of the environment.
    """
    named = machine.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip reads this as "no configuration at all"
        return named
    files = [machine.cwd / named] if named else []
    files = [file for file in files if os.path.isfile(file)] or [
        file for file in (home / ".pip" / "pip.conf", config / "pip" / "pip.conf") if os.path.isfile(file)
    ]
    if not files:
        return None
    merged = configparser.RawConfigParser()
    try:
        merged.read(files, encoding="utf-8")
        text = io.StringIO()
        merged.write(text)
    except (configparser.Error, ValueError):
        return str(files[-1])  # pip will report its fault
    made = folder / "pip.conf"
    made.touch(mode=0o600)
    made.write_text(_HOME.sub(lambda _: f"{home}/", text.getvalue()), encoding="utf-8")
    return str(made)
