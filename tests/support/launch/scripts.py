"""Reading a launch file of a test."""

from __future__ import annotations

import os
from pathlib import Path

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

ENVIRON = {"HOME": "/home/u", "PATH": os.environ.get("PATH", ""), "OUTSIDE": "o"}


def read(folder: Path, script: str | bytes, *words: str, name: str = "run.sh") -> Launch:
    path = folder / name
    path.write_bytes(script.encode() if isinstance(script, str) else script)
    target = Target(Path("/env/bin/python"), "--python", files=(path,), words=words)
    found = launch.collect(target, Machine(environ=ENVIRON, cwd=folder))
    assert isinstance(found, Launch)
    return found


def words_of(found: Launch) -> list[str | None]:
    assert found.command
    return [word.text for word in found.command.words]


def given(found: Launch) -> dict[str, str | None]:
    return {setting.name: setting.value for setting in found.settings}


START = "python3 -m verl.trainer.main_ppo a.b=1 c.d=2\n"
