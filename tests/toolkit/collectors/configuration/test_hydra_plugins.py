"""Where plugins for Hydra may be: only where none can be, Hydra's own options are all."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.configuration.hydra_plugins import own_of_hydra
from verl_doctor.toolkit.collectors.launch.launch import Command, Setting
from verl_doctor.toolkit.machine import Machine


def look(folder: Path, *settings: Setting, **environ: str) -> bool:
    """Return whether Hydra's own options are known to be all."""
    site = folder / "lib/python3.11/site-packages"
    (site / "hydra/conf").mkdir(parents=True, exist_ok=True)
    command = Command(
        "verl.trainer.main_ppo", (), str(folder / "scripts/run.sh"), 2, folder=str(folder / "start")
    )
    machine = Machine({"HOME": str(folder / "home"), **environ}, folder / "here")
    return own_of_hydra(site, command, machine, settings) == site / "hydra/conf"


def test_options_of_hydra_alone(tmp_path: Path) -> None:
    assert look(tmp_path)
    (tmp_path / "lib/python3.11/site-packages/hydra/conf").rmdir()
    assert own_of_hydra(tmp_path / "lib/python3.11/site-packages", Command("m", (), "", 0), Machine({}, tmp_path)) is None  # fmt: skip


@pytest.mark.parametrize(
    "folder",
    [
        "start",
        "here",
        "scripts",
        "lib/python3.11/site-packages",
        "home/.local/lib/python3.11/site-packages",
        "shell",
        "script",
        "start/src",
    ],
)
def test_plug_ins_on_the_path_of_the_job(tmp_path: Path, folder: str) -> None:
    setting = Setting("PYTHONPATH", f"{tmp_path}/script:src", "run.sh", 1)
    assert look(tmp_path, setting, PYTHONPATH=f"{tmp_path}/shell")
    (tmp_path / folder / "hydra_plugins/mine").mkdir(parents=True)
    assert not look(tmp_path, setting, PYTHONPATH=f"{tmp_path}/shell")


@pytest.mark.parametrize(
    ("name", "value"),
    [("PYTHONPATH", None), ("PYTHONPATH", "$SRC/src"), ("VERL_USE_EXTERNAL_MODULES", "mine")],
)
def test_unknown_variable_may_bring_plug_ins(tmp_path: Path, name: str, value: str | None) -> None:
    assert not look(tmp_path, Setting(name, value, "run.sh", 1))


@pytest.mark.parametrize(
    ("line", "is_certain"),
    [
        ("/nowhere\n# a comment\n../other\n", True),
        ("import os; var = 'SETUPTOOLS_USE_DISTUTILS'\n", True),
        ("import __editable___plain_finder; __editable___plain_finder.install()\n", True),
        ("import __editable___mine_finder; __editable___mine_finder.install()\n", False),
        ("import unseen_loader\n", False),
        ("import sys, types; p = 'hydra_plugins'\n", False),
        ("../more\n", False),
    ],
)
def test_editable_installs(tmp_path: Path, line: str, *, is_certain: bool) -> None:
    assert look(tmp_path)
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "mine.pth").write_text(line)
    (site / "__editable___plain_finder.py").write_text("MAPPING = {'plain': '/src/plain'}\n")
    (site / "__editable___mine_finder.py").write_text("MAPPING = {'hydra_plugins': '/src/hydra_plugins'}\n")
    (site.parent / "more/hydra_plugins").mkdir(parents=True)
    assert look(tmp_path) is is_certain


def test_packages_of_the_system_may_bring_plug_ins(tmp_path: Path) -> None:
    assert look(tmp_path)
    (tmp_path / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    assert not look(tmp_path)
