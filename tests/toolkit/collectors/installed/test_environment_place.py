"""Where the environment lies: the same files are named the same, others are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.recorded import recorded

from verl_doctor.toolkit.collectors.installed.environment_place import EnvironmentPlace, environment_place
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target


def at(prefix: Path, machine: Machine) -> EnvironmentPlace | Unknown:
    (prefix / "bin").mkdir(parents=True, exist_ok=True)
    return environment_place.collect(Target(prefix / "bin" / "python", "--python"), machine)


def mounted(root: Path, prefix: Path, kind: str, device: str, boot: str) -> Machine:
    line = f"30 1 0:25 / / rw - {kind} {device} rw\n"
    return recorded(root, {"/proc/self/mountinfo": line, "/proc/sys/kernel/random/boot_id": f"{boot}\n"})


def test_environment_on_this_machine(tmp_path: Path) -> None:
    one, other = at(tmp_path / "one", Machine()), at(tmp_path / "other", Machine())
    assert isinstance(one, EnvironmentPlace)
    assert isinstance(other, EnvironmentPlace)
    assert one.prefix == os.path.realpath(tmp_path / "one")
    assert one == at(tmp_path / "one", Machine())
    assert one.files != other.files


@pytest.mark.parametrize(
    ("kind", "device", "same"), [("nfs4", "nas:/env", True), ("ext4", "/dev/sda1", False)]
)
def test_share_has_one_identity_on_two_machines_and_a_disk_has_two(
    tmp_path: Path, kind: str, device: str, same: bool
) -> None:
    first = at(tmp_path / "env", mounted(tmp_path / "a", tmp_path, kind, device, "boot-a"))
    second = at(tmp_path / "env", mounted(tmp_path / "b", tmp_path, kind, device, "boot-b"))
    assert isinstance(first, EnvironmentPlace)
    assert isinstance(second, EnvironmentPlace)
    assert first.shared is same
    assert (first.files == second.files) is same


def test_kernel_without_a_mount_table_is_unknown(tmp_path: Path) -> None:
    answer = at(tmp_path / "env", recorded(tmp_path / "a", {"/proc/sys/kernel/random/boot_id": "boot\n"}))
    assert isinstance(answer, Unknown)


def test_missing_environment_is_unknown(tmp_path: Path) -> None:
    answer = environment_place.collect(Target(tmp_path / "gone" / "bin" / "python", "--python"), Machine())
    assert answer == Unknown(f"{tmp_path}/gone cannot be examined: No such file or directory")
