"""What children see of this machine and of the user, and the kernel's files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from verl_doctor.toolkit.machine import Answer, Machine


def seen_by_a_child(**machine: object) -> Mapping[str, str]:
    found: dict[str, str] = {}

    def runner(_: Sequence[str], environ: Mapping[str, str], __: float) -> Answer:
        found.update(environ)
        return Answer(0, "", "", 0.0)

    Machine(runner=runner, **machine).run(["x"], timeout=1)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("environ", "base"),
    [
        ({"HOME": "/home/me"}, "/home/me/.local"),
        ({"HOME": "/home/me", "PYTHONUSERBASE": "/mine"}, "/mine"),
        ({}, None),
    ],
)
def test_the_users_own_packages_stay_in_sight(environ: dict[str, str], base: str | None) -> None:
    found = seen_by_a_child(environ=environ)
    assert found.get("PYTHONUSERBASE") == base
    assert found["HOME"] != "/home/me"


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
def test_relative_entries_of_pythonpath_mean_the_users_folder(path: str, means: str) -> None:
    assert seen_by_a_child(environ={"PYTHONPATH": path}, cwd=Path("/job"))["PYTHONPATH"] == means


def test_a_folder_that_was_removed_is_replaced_by_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert Machine(environ={}).cwd == Path("/")


def test_a_user_site_package_is_found_by_the_child(tmp_path: Path) -> None:
    home = tmp_path / "home"
    where = "import site; print(site.getusersitepackages())"
    base = Machine(environ={"HOME": str(home)}).run([sys.executable, "-c", where], timeout=20).stdout.strip()
    assert base.startswith(str(home / ".local")), shlex.quote(base)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_setting_of_the_kernels_is_read() -> None:
    assert (Machine().read("/proc/sys/kernel/pid_max") or "").strip().isdigit()
