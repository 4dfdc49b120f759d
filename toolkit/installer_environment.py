"""The environment in which pip or uv resolves as the user's own would, and writes nothing at the user's home."""

from __future__ import annotations

import configparser
import io
import os
import re
from pathlib import Path

from verl_doctor.toolkit.machine import Machine

# Without a network the answer must come soon.
_UV_SOON = {"UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"}
_HOME = re.compile(r"(?<![^\s=])~/")


def as_the_user(machine: Machine, folder: Path) -> dict[str, str]:
    """Let the installer see the user's own configuration, which names the index, and keep it from writing at home.

    HOME stays the private one that every child gets. `folder` is for what is made only for this question.
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
    """The user's configuration of pip as one file, in which `~` is the user's home; None when there is none.

    pip reads the file that PIP_CONFIG_FILE names instead of the user's two; those of the system and of the environment
    it reads anyway.
    """
    named = machine.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip takes this for "none at all"
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
        return str(files[-1])  # pip will say what is wrong with it
    made = folder / "pip.conf"
    made.touch(mode=0o600)
    made.write_text(_HOME.sub(lambda _: f"{home}/", text.getvalue()), encoding="utf-8")
    return str(made)
