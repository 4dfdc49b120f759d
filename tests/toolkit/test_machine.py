"""What children see of this machine and user, and kernel files."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from verl_doctor.toolkit.machine import Machine, Output


def seen_by_a_child(**machine: object) -> Mapping[str, str]:
    found: dict[str, str] = {}

    def runner(_: Sequence[str], environ: Mapping[str, str], __: float) -> Output:
        found.update(environ)
        return Output(0, "", "", 0.0)

    Machine(runner=runner, **machine).run(["x"], timeout=1)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("environ", "base"),
    [
        ({"HOME": "/home/me"}, "/home/me/.local"),
        ({"HOME": "/home/me", "PYTHONUSERBASE": "/mine"}, "/mine"),
        ({}, "/home/of/table/.local"),
    ],
)
def test_user_site_packages_remain_visible_to_children(
    environ: dict[str, str], base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir="/home/of/table"))
    found = seen_by_a_child(environ=environ)
    assert found.get("PYTHONUSERBASE") == base
    assert found["HOME"] != "/home/me"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("$HOME/x", "/home/me/x"),
        ("${HOME}/~", "/home/me/~"),
        ("~other/x", "~other/x"),
    ],
)
def test_home_in_a_path(path: str, found: str) -> None:
    assert Machine(environ={"HOME": "/home/me"}).expanded(path) == found


def test_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a user number without an entry."""

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert Machine(environ={}).home == ""
    assert "PYTHONUSERBASE" not in seen_by_a_child(environ={})


@pytest.mark.parametrize(
    ("path", "means"),
    [
        (".", "/job"),
        ("third:/abs", "/job/third:/abs"),
        ("/abs:", "/abs:/job"),
        ("../x::y/", "/x:/job:/job/y"),
        ("", ""),
    ],
)
def test_relative_pythonpath_entries_are_made_absolute(path: str, means: str) -> None:
    assert seen_by_a_child(environ={"PYTHONPATH": path}, cwd=Path("/job"))["PYTHONPATH"] == means


def test_removed_working_folder_is_replaced_by_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert Machine(environ={}).cwd == Path("/")


def test_user_site_package_is_found_by_the_child(tmp_path: Path) -> None:
    home = tmp_path / "home"
    where = "import site; print(site.getusersitepackages())"
    base = Machine(environ={"HOME": str(home)}).run([sys.executable, "-c", where], timeout=120).stdout.strip()
    assert base.startswith(str(home / ".local")), shlex.quote(base)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kernel_setting_is_read() -> None:
    assert (Machine().read("/proc/sys/kernel/pid_max") or "").strip().isdigit()


def test_machine_without_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(OSError, match="no folder for temporary files can be written"):
        Machine().run(["true"], timeout=1)


def test_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ray_current_cluster")
    assert Machine(root=tmp_path).read("/ray_current_cluster") == ""
