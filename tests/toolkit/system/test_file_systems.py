"""Which file system a path lies on, from recorded lists of mounts (proc_pid_mountinfo(5))."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import (
    FileSystem,
    file_system_of,
    file_systems,
    may_write,
    nearest,
    overlay_layers,
    space_of,
    why_not_writable,
)

NODE = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 27 0:27 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=268435456k
40 27 0:50 / /home rw,relatime shared:9 master:2 - nfs4 filer:/export/home rw,vers=4.2,hard
41 40 0:51 / /home/me/data\040sets ro,relatime - lustre 10.0.0.1@o2ib:/fs rw
42 27 254:16 / /usr/local/nvidia rw,nosuid - squashfs /dev/vdb ro,errors=continue
43 27 0:52 / /tmp rw,noexec - tmpfs tmp rw
44 27 0:53 / /mnt/a rw - ext4 /dev/vdc rw
45 44 0:54 / /mnt/a rw - fuse.sshfs me@host: rw,user_id=0
"""


def machine(folder: Path, mounts: str = NODE) -> Machine:
    file = folder / "proc" / "self" / "mountinfo"
    file.parent.mkdir(parents=True)
    file.write_text(mounts)
    return Machine(environ={}, root=folder)


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    return machine(tmp_path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc/hosts", "ext4"),
        ("/home/me/.cache", "nfs4"),
        ("/homes/me", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/data sets/x.parquet", "lustre"),
        ("/dev/shm/a", "tmpfs"),
        ("/not/there/yet", "ext4"),
        ("/mnt/a/b", "fuse.sshfs"),  # the later mount hides the earlier one
    ],
)
def test_deepest_and_latest_mount_contains_a_path(node: Machine, path: str, kind: str) -> None:
    found = file_system_of(node, path)
    assert found is not None
    assert found.kind == kind


def test_mount_and_file_system_options_are_read(node: Machine) -> None:
    found = {mount.mounted_on: mount for mount in file_systems(node)}
    assert found["/home/me/data sets"].read_only
    assert found["/usr/local/nvidia"].read_only  # the mount may be written, the file system not
    assert not found["/home"].read_only
    assert "noexec" in found["/tmp"].options
    assert found["/home"].device == "filer:/export/home"


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("lustre", True),
        ("fuse.juicefs", True),
        ("9p", True),
        ("ext4", False),
        ("xfs", False),
        ("overlay", False),
        ("tmpfs", False),
        ("fuse.fuse-overlayfs", False),
        ("fuseblk", False),
    ],
)
def test_shared_file_systems(kind: str, shared: bool) -> None:
    assert FileSystem("/x", kind, "device").shared is shared


def test_invalid_lines_are_skipped(tmp_path: Path) -> None:
    damaged = machine(tmp_path, "27 1 254:0 / / rw\nnonsense\n\n28 1 0:1 / /a rw - ext4 /dev/x rw\n")
    assert [mount.mounted_on for mount in file_systems(damaged)] == ["/a"]
    assert file_system_of(damaged, "/b") is None


def test_missing_mount_list_is_unknown(tmp_path: Path) -> None:
    assert file_system_of(Machine(environ={}, root=tmp_path), "/home") is None


def test_real_machine() -> None:
    found = file_system_of(Machine(environ={}), "/proc/self")
    assert found is not None
    assert found.kind == "proc"


def test_free_space_of_a_missing_path_is_that_of_its_parent(tmp_path: Path) -> None:
    here = Machine(environ={}, root=tmp_path)
    (tmp_path / "a").mkdir()
    assert nearest(here, "/a/b/c") == tmp_path / "a"
    assert may_write(nearest(here, "/a/b/c"))
    space = space_of(tmp_path / "a")
    assert space is not None
    assert 0 <= space.free <= space.size
    assert space_of(tmp_path / "b") is None


def test_file_is_not_a_writable_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert not may_write(nearest(Machine(environ={}, root=tmp_path), "/a/b"))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/proc/x/y", "/proc is the kernel's own (proc), where no files can be created"),
        ("/tmp/file/x", "/tmp/file is not a folder"),
        ("/tmp/lost", "/tmp/lost is not a folder"),
        ("/tmp/new/folder", ""),
        ("/tmp", ""),
    ],
)
def test_reasons_why_no_file_can_be_created(node: Machine, path: str, why: str) -> None:
    node.at("/tmp").mkdir()
    node.at("/tmp/file").touch()
    node.at("/tmp/lost").symlink_to("nowhere")
    assert why_not_writable(node, path) == why


def test_folder_without_write_permission(node: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_doctor.toolkit.system.file_systems.why_refused", lambda _: "Permission denied")
    node.at("/home/me/data sets").mkdir(parents=True)
    assert why_not_writable(node, "/home/me/data sets/x") == "/home/me/data sets is mounted read-only"
    assert why_not_writable(node, "/home/me/x").endswith("cannot write to /home/me")


def test_layers_of_overlays_are_listed_as_written() -> None:
    mounts = (
        "50 27 0:60 / /a rw - overlay none rw,lowerdir=/tmp/one\\040two:.,upperdir=/up,workdir=/w,xino=off\n"
        "51 27 0:61 / /b rw - overlay overlay ro,lowerdir+=/x,datadir+=/y\n"
        "52 27 0:62 / /c rw - ext4 /dev/vdd rw,lowerdir=/no\n"
    )
    assert list(overlay_layers(mounts)) == ["/tmp/one two", ".", "/up", "/w", "/x", "/y"]
