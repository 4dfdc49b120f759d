"""Folders of Ray's sessions and temporary files, and their file systems."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.places import ROOT
from support.recorded import recorded

from verl_doctor.toolkit.collectors.host.folders import Folder, Folders, folders
from verl_doctor.toolkit.collectors.host.spilling import Spilling
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import file_systems

RAYLET = Process(7, 1, "raylet", "raylet", True, 0.0)
MOUNTS = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:9 / /home rw,noexec - nfs4 server:/home rw
"""


def look(
    root: Path,
    *running: Process,
    files: Mapping[str, str] | None = None,
    settings: tuple[Setting, ...] = (),
    start: Mapping[str, str] | None = None,
    spilling: Spilling | None = None,
    **environ: str,
) -> Folders:
    machine = recorded(root, {"/proc/self/mountinfo": MOUNTS, "/tmp/x": "", **(files or {})}, **environ)
    starts = RayStarts((RayStart("run.sh", 3, start),)) if start else Unknown("")
    found = folders.collect(
        machine, Processes(running), Launch((), settings), starts, Unknown(""), spilling or Unknown("")
    )
    assert isinstance(found, Folders)
    return found


def rays(found: Folders) -> tuple[str, str]:
    (folder,) = found.of("Ray's sessions")
    return folder.path, folder.given_by


def test_defaults_apply_without_any_setting(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert rays(found) == ("/tmp/ray", "")
    (temporary,) = found.of("temporary files")
    assert (temporary.path, temporary.kind, temporary.shared, temporary.runnable) == (
        "/tmp",
        "ext4",
        False,
        True,
    )
    assert temporary.size
    assert found.spare
    assert found.spare.path == f"/tmp/ray-{os.getuid()}"


@pytest.mark.parametrize(
    ("environ", "path", "by"),
    [
        ({"TMPDIR": "/home/me/t"}, "/home/me/t/ray", "TMPDIR of this shell"),
        ({"TMPDIR": "/home/me/t", "RAY_TMPDIR": "/r"}, "/r/ray", "RAY_TMPDIR of this shell"),
    ],
)
def test_variables(tmp_path: Path, environ: dict[str, str], path: str, by: str) -> None:
    assert rays(look(tmp_path, **environ)) == (path, by)


def test_network_file_system(tmp_path: Path) -> None:
    (folder,) = look(tmp_path, TMPDIR="/home/me/t").of("temporary files")
    assert (folder.kind, folder.shared, folder.runnable) == ("nfs4", True, False)


def test_script_beats_shell_and_option_beats_variable(tmp_path: Path) -> None:
    setting = Setting("RAY_TMPDIR", "/s", "run.sh", 2)
    assert rays(look(tmp_path, settings=(setting,), RAY_TMPDIR="/r")) == ("/s/ray", "RAY_TMPDIR in run.sh:2")
    start = {"temp-dir": "/scratch/$USER"}
    assert rays(look(tmp_path, settings=(setting,), start=start, USER="me")) == ("/scratch/me", "run.sh:3")


def test_variables_unset_in_a_launch_file_are_ignored(tmp_path: Path) -> None:
    gone = Setting("RAY_TMPDIR", None, "run.sh", 3, removed=True)
    before = Setting("RAY_TMPDIR", "/s", "run.sh", 2)
    assert rays(look(tmp_path, settings=(before, gone), RAY_TMPDIR="/r"))[0] == "/tmp/ray"


@pytest.mark.parametrize(
    "setting",
    [Setting("TMPDIR", "/s", "run.sh", 3, conditional=True), Setting("TMPDIR", None, "run.sh", 3)],
    ids=["under a condition", "not readable"],
)
def test_conditional_setting_leaves_the_folder_undetermined(tmp_path: Path, setting: Setting) -> None:
    assert look(tmp_path, settings=(setting,), TMPDIR="/r").folders == ()
    found = look(tmp_path, settings=(setting,), RAY_TMPDIR="/r")
    assert [folder.path for folder in found.folders] == ["/r/ray"]


def test_empty_tmpdir_counts_only_for_ray(tmp_path: Path) -> None:
    found = look(tmp_path, TMPDIR="")
    assert rays(found) == (str(Path.cwd() / "ray"), "TMPDIR of this shell")
    assert found.of("temporary files")[0].path == "/tmp"


def test_undetermined_folder_is_not_inspected(tmp_path: Path) -> None:
    assert look(tmp_path, start={"temp-dir": "$SOMEWHERE/ray"}).of("Ray's sessions") == ()


def test_folder_of_a_running_raylet_is_read(tmp_path: Path) -> None:
    files = {
        "/proc/7/cmdline": "raylet\0--session-name=s --temp-dir=/data/ray --webui=\0--temp_dir=/data/ray"
    }
    joining = look(tmp_path, RAYLET, files=files, RAY_TMPDIR="/r", RAY_ADDRESS="auto")
    assert (
        rays(joining) == rays(look(tmp_path, RAYLET, files=files)) == ("/data/ray", "the raylet (process 7)")
    )
    assert joining.of("Ray's sessions")[0].in_use


def test_new_ray_in_another_folder_than_the_running_one(tmp_path: Path) -> None:
    files = {"/proc/7/cmdline": "raylet\0--temp-dir=/data/ray"}
    sessions = look(tmp_path, RAYLET, files=files, RAY_TMPDIR="/r").of("Ray's sessions")
    assert [(folder.path, folder.in_use) for folder in sessions] == [("/data/ray", True), ("/r/ray", False)]
    assert len(look(tmp_path, RAYLET, files=files, RAY_TMPDIR="/data").of("Ray's sessions")) == 1


def test_folder_of_another_user_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath("tmp", "ray").mkdir(parents=True)
    refused = lambda path: "Permission denied" if path.name == "ray" else ""  # noqa: E731 - root may write anywhere
    monkeypatch.setattr(file_systems, "why_refused", refused)
    found = look(tmp_path)
    assert not found.of("Ray's sessions")[0].writable
    assert found.of("temporary files")[0].writable


def test_fill_level() -> None:
    assert Folder("temporary files", "/t", size=100, free=25).full == 0.75
    assert Folder("temporary files", "/t").full is None


def test_folders_for_spilled_objects_are_inspected(tmp_path: Path) -> None:
    found = look(tmp_path, spilling=Spilling(("/home/me/spill", "/tmp/there"), "somebody"))
    first, second = found.of("spilled objects")
    assert (first.path, first.kind, first.shared, first.given_by) == (
        "/home/me/spill",
        "nfs4",
        True,
        "somebody",
    )
    assert second.path == "/tmp/there"
    assert second.kind == "ext4"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file system")
def test_real_small_full_disk(tmp_path: Path) -> None:
    """A 1 MiB file system with 16 inodes, noexec, in a private mount namespace."""
    program = f"""
import sys; sys.path.insert(0, {str(ROOT / ".dev")!r})
from verl_doctor.toolkit.collectors.host.folders import folders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
u = Unknown("")
open({str(tmp_path)!r} + "/fill", "wb").write(bytes(900 * 1024))
for f in folders.collect(Machine(environ={{"TMPDIR": {str(tmp_path)!r}}}), u, u, u, u, u).of("temporary files"):
    print(f.size, f.free, f.inodes, f.inodes_free, f.kind, f.runnable)
"""
    mount = f"mount -t tmpfs -o size=1m,nr_inodes=16,noexec none {tmp_path} && exec {sys.executable} -"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount], input=program, capture_output=True, text=True, check=False
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    size, free, inodes, inodes_free, kind, runnable = done.stdout.split()
    assert (size, inodes, inodes_free, kind, runnable) == ("1048576", "16", "14", "tmpfs", "False")
    assert int(free) == 124 * 1024


def test_folders_of_the_real_machine_are_read() -> None:
    u = Unknown("")
    found = folders.collect(Machine(environ={}), u, u, u, u, u)
    assert all(folder.size for folder in found.folders)
