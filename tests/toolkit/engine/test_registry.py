"""A list of plugins that another user could have written is not loaded, and that is a problem with owner and mode."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest
from crash.children import NOBODY

from verl_doctor.toolkit.engine import registry


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution in a folder on the path, as the current folder is for `python -m`."""
    info = tmp_path / "hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[verl_doctor.checks]\nhostile = hostile_plugin\n")
    (tmp_path / "hostile_plugin.py").write_text(
        f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    # Only this one is looked at, and not every distribution of the machine that runs the tests.
    found = importlib.metadata.PathDistribution(info).entry_points
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda: found)
    return info


def problem() -> str:
    (found,) = registry.load().problems.problems
    assert found.distribution == "hostile"
    return found.error


def test_own_plugin_is_loaded(plugin: Path) -> None:
    assert "offers no check" in problem()
    assert (plugin.parent / "ran").exists()


@pytest.mark.parametrize("place", ["", "entry_points.txt"])
def test_world_writable_plugin_is_not_loaded(plugin: Path, place: str) -> None:
    (plugin / place).chmod(0o777)
    assert (
        f"it is not loaded: another user could have written its list of plugins: anybody may write to {plugin}"
        in problem()
    )
    assert "mode 0777); inspect it" in problem()
    assert not (plugin.parent / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("place", ["", "entry_points.txt"])
def test_plugin_of_another_user_is_not_loaded(plugin: Path, place: str) -> None:
    os.chown(plugin / place, NOBODY, NOBODY)
    assert f"belongs to user {NOBODY}" in problem()
    assert not (plugin.parent / "ran").exists()


def test_path_is_searched_for_plugins_without_importlib(tmp_path: Path) -> None:
    """Entries other than plain folders of distributions are treated like folders."""
    others = tmp_path / "others-1.0.dist-info"
    others.mkdir()
    (others / "entry_points.txt").write_text("[console_scripts]\nothers = others:main\n")
    (tmp_path / "empty-1.0.egg-info").touch()
    assert not registry._may_hold_plugins(str(tmp_path))
    assert not registry._may_hold_plugins(str(tmp_path / "missing"))
    (tmp_path / "packages.zip").touch()
    assert registry._may_hold_plugins(str(tmp_path / "packages.zip"))
    (tmp_path / "old.egg").mkdir()
    assert registry._may_hold_plugins(str(tmp_path / "old.egg"))
    assert registry._may_hold_plugins(str(tmp_path))
    (tmp_path / "old.egg").rmdir()
    (others / "entry_points.txt").write_text("[verl_doctor.facts]\nothers = others\n")
    assert registry._may_hold_plugins(str(tmp_path))


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_list_of_plugins_without_an_end_is_not_read(
    plugin: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a plugin, whose list is read."""
    other = tmp_path / "other-1.0.dist-info"
    other.mkdir()
    if kind == "pipe":
        os.mkfifo(other / "entry_points.txt")
    else:
        (other / "entry_points.txt").symlink_to("/dev/zero")
    found = [importlib.metadata.PathDistribution(folder) for folder in (plugin, other)]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)
    assert "offers no check" in problem()


def test_distribution_offers_so_many_plugins_at_most(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "".join(f"a{number} = hostile_plugin\n" for number in range(9))
    (plugin / "entry_points.txt").write_text(f"[verl_doctor.checks]\n{names}")
    found = importlib.metadata.PathDistribution(plugin).entry_points
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda: found)
    monkeypatch.setattr(registry, "_MOST_OFFERED", 3)
    problems = registry.load().problems.problems
    assert len(problems) == 4
    assert "a distribution may offer 3 entry points" in problems[-1].error


@pytest.mark.parametrize("value", ["../../etc/passwd:x", "a;os.system('true')", ":x", "-"])
def test_entry_point_that_names_no_module_is_a_problem(
    plugin: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plugin / "entry_points.txt").write_text(f"[verl_doctor.checks]\nhostile = {value}\n")
    found = importlib.metadata.PathDistribution(plugin).entry_points
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda: found)
    assert problem() == "it names no module and part of one"
