"""File metadata: links, modes, owners, attributes; and unwritable places."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.children import NOBODY, run_as

from verl_doctor.toolkit.change import NewFile, ReplaceFile
from verl_doctor.toolkit.changes.apply import Refused, apply, history, undo

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def put(path: Path, home: Path, old: bytes = b"old\n", new: bytes = b"new\n") -> None:
    apply([ReplaceFile(path, old, new)], home, fix="repair", code="VLLM101")


def test_other_hard_links_keep_the_old_content_on_apply_and_undo(root: Path) -> None:
    cache, file = root / "cache.py", root / "env.py"
    cache.write_bytes(b"old\n")
    os.link(cache, file)
    seen = cache.stat()
    put(file, root / "home")
    assert (cache.read_bytes(), file.read_bytes()) == (b"old\n", b"new\n")
    undo(root / "home")
    assert (cache.read_bytes(), file.read_bytes()) == (b"old\n", b"old\n")
    assert (cache.stat().st_ino, cache.stat().st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns)


def test_hard_link_created_after_apply_keeps_the_new_content_on_undo(root: Path) -> None:
    (root / "a.py").write_bytes(b"old\n")
    put(root / "a.py", root / "home")
    os.link(root / "a.py", root / "b.py")
    undo(root / "home")
    assert (root / "b.py").read_bytes() == b"new\n"


def test_symbolic_link_is_kept_and_its_target_is_changed(root: Path) -> None:
    (root / "deep").mkdir()
    (root / "deep/real.py").write_bytes(b"old\n")
    (root / "middle.py").symlink_to("deep/real.py")
    (root / "link.py").symlink_to(root / "middle.py")
    put(root / "link.py", root / "home")
    assert (root / "link.py").readlink() == root / "middle.py"
    assert (root / "deep/real.py").read_bytes() == b"new\n"
    undo(root / "home")
    assert (root / "deep/real.py").read_bytes() == b"old\n"


def test_new_file_is_created_through_a_linked_folder(root: Path) -> None:
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    apply([NewFile(root / "link/sub/x", b"x")], root / "home", fix="f", code="C")
    assert (root / "real/sub/x").read_bytes() == b"x"
    undo(root / "home")
    assert list((root / "real").iterdir()) == []


@pytest.mark.parametrize(("target", "message"), [("nowhere", "leads nowhere"), ("link.py", "symbolic links")])
def test_broken_or_circular_link_is_refused(root: Path, target: str, message: str) -> None:
    (root / "link.py").symlink_to(target)
    with pytest.raises(Refused, match=message):
        put(root / "link.py", root / "home")
    with pytest.raises(Refused):
        apply([NewFile(root / "link.py", b"x")], root / "home", fix="f", code="C")
    assert not (root / "home").exists()


@pytest.mark.parametrize("mode", [0o444, 0o600, 0o755, 0o640, 0o6755, 0o000])
def test_mode_is_preserved(root: Path, mode: int) -> None:
    file = root / "a.py"
    file.write_bytes(b"old\n")
    file.chmod(mode)
    if os.geteuid() != 0 and not mode & 0o400:
        pytest.skip("such a file cannot be read")
    for step in (lambda: put(file, root / "home"), lambda: undo(root / "home")):
        step()
        assert file.stat().st_mode & 0o7777 == mode


def test_journal_copy_is_as_private_as_the_file(root: Path) -> None:
    (root / "a.py").write_bytes(b"old\n")
    (root / "a.py").chmod(0o700)
    put(root / "a.py", root / "home")
    (entry,) = history(root / "home")
    assert {path.name: path.stat().st_mode & 0o777 for path in entry.folder.glob("0.*")} == {
        "0.before": 0o600,
        "0.after": 0o600,
    }


@as_root
def test_root_preserves_the_owner(root: Path) -> None:
    file = root / "a.py"
    file.write_bytes(b"old\n")
    os.chown(file, 1234, 4321)
    file.chmod(0o4711)
    for step in (lambda: put(file, root / "home"), lambda: undo(root / "home")):
        step()
        seen = file.stat()
        assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (1234, 4321, 0o4711)


@as_root
def test_ordinary_user_refuses_a_file_whose_owner_would_change(root: Path) -> None:
    file = root / "a.py"
    file.write_bytes(b"old\n")
    root.chmod(0o777)
    message = run_as(NOBODY, lambda: put(file, root / "home"))
    assert "belongs to user 0" in message
    assert "Refused" in message
    os.chown(file, NOBODY, 0)
    assert "group 0" in run_as(NOBODY, lambda: put(file, root / "home"))
    assert file.read_bytes() == b"old\n"
    assert not (root / "home").exists()


@as_root
def test_user_can_change_their_own_read_only_file(root: Path) -> None:
    file = root / "env/a.py"
    file.parent.mkdir()
    file.write_bytes(b"old\n")
    file.chmod(0o444)
    for path in (file, file.parent):
        os.chown(path, NOBODY, NOBODY)
    assert run_as(NOBODY, lambda: put(file, root / "env/home")) == ""
    assert (file.read_bytes(), file.stat().st_mode & 0o777, file.stat().st_uid) == (b"new\n", 0o444, NOBODY)
    assert run_as(NOBODY, lambda: undo(root / "env/home")) == ""
    assert file.read_bytes() == b"old\n"


@as_root
def test_unwritable_folder_is_refused_before_anything_changes(root: Path) -> None:
    for name in ("open", "closed"):
        (root / name).mkdir()
        (root / name / "a.py").write_bytes(b"old\n")
        os.chown(root / name / "a.py", NOBODY, NOBODY)
    os.chown(root / "open", NOBODY, NOBODY)
    changes = [ReplaceFile(root / name / "a.py", b"old\n", b"new\n") for name in ("open", "closed")]
    message = run_as(NOBODY, lambda: apply(changes, root / "open/home", fix="f", code="C"))
    assert f"{root / 'closed'} is not writable for user {NOBODY}" in message
    assert (root / "open/a.py").read_bytes() == b"old\n"
    assert not (root / "open/home").exists()
    message = run_as(NOBODY, lambda: apply(changes[:1], root / "closed/home", fix="f", code="C"))
    assert "Permission denied" in message
    assert message.startswith("Refused")
    assert (root / "open/a.py").read_bytes() == b"old\n"


@as_root
def test_journal_is_unreadable_to_other_users(root: Path) -> None:
    (root / "a.py").write_bytes(b"old\n")
    put(root / "a.py", root / "home")
    for use in (history, undo):
        message = run_as(NOBODY, lambda use=use: use(root / "home"))
        assert message.startswith("Refused: "), message


@as_root
def test_immutable_file_is_refused(root: Path) -> None:
    (root / "a.py").write_bytes(b"old\n")
    if (
        shutil.which("chattr") is None
        or subprocess.run(["chattr", "+i", root / "a.py"], check=False).returncode
    ):
        pytest.skip("this file system knows no immutable files")
    try:
        with pytest.raises(Refused, match="immutable"):
            put(root / "a.py", root / "home")
    finally:
        subprocess.run(["chattr", "-i", root / "a.py"], check=True)
    assert not (root / "home").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "device"])
def test_special_files_are_refused(root: Path, kind: str) -> None:
    path = root / "a.py"
    with socket.socket(socket.AF_UNIX) as listener:
        match kind:
            case "folder":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case "socket":
                listener.bind(str(path))
            case "device":
                path = Path("/dev/null")
        with pytest.raises(Refused, match="is not a regular file"):
            put(path, root / "home")
    assert not (root / "home").exists()


def test_extended_attributes_are_preserved(root: Path) -> None:
    file = root / "a.py"
    file.write_bytes(b"old\n")
    try:
        os.setxattr(file, "user.origin", b"wheel\x00")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error.strerror}")
    for step in (lambda: put(file, root / "home"), lambda: undo(root / "home")):
        step()
        assert {name: os.getxattr(file, name) for name in os.listxattr(file)} == {"user.origin": b"wheel\x00"}


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """An access list as Linux stores it: version 2, then (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OWNER, USER, GROUP, MASK, OTHER, NO_ID = 1, 2, 4, 16, 32, 0xFFFFFFFF


def test_access_lists_are_preserved_and_none_is_inherited(root: Path) -> None:
    rest = ((USER, 4, 1234), (GROUP, 4, NO_ID), (MASK, 4, NO_ID), (OTHER, 0, NO_ID))
    rules = access_list((OWNER, 6, NO_ID), *rest)
    (root / "with.py").write_bytes(b"old\n")
    (root / "without.py").write_bytes(b"old\n")
    try:
        os.setxattr(root / "with.py", "system.posix_acl_access", rules)
        os.setxattr(root, "system.posix_acl_default", access_list((OWNER, 7, NO_ID), *rest))
    except OSError as error:
        pytest.skip(f"no access lists here: {error.strerror}")
    changes = [ReplaceFile(root / name, b"old\n", b"new\n") for name in ("with.py", "without.py")]
    modes = [(root / name).stat().st_mode for name in ("with.py", "without.py")]
    for step in (lambda: apply(changes, root / "home", fix="f", code="C"), lambda: undo(root / "home")):
        step()
        assert os.getxattr(root / "with.py", "system.posix_acl_access") == rules
        assert "system.posix_acl_access" not in os.listxattr(root / "without.py")
        assert [(root / name).stat().st_mode for name in ("with.py", "without.py")] == modes


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    disk = root / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


@as_root
@pytest.mark.parametrize("journal_elsewhere", [True, False])
def test_full_disk_leaves_everything_unchanged(root: Path, small_disk: Path, journal_elsewhere: bool) -> None:
    home = (root if journal_elsewhere else small_disk) / "home"
    (small_disk / "small.py").write_bytes(b"old\n")
    (small_disk / "large.py").write_bytes(b"large\n")
    changes = [
        ReplaceFile(small_disk / "small.py", b"old\n", b"new\n"),
        ReplaceFile(small_disk / "large.py", b"large\n", b"x" * 100_000),
        NewFile(small_disk / "made/new.py", b"new\n"),
    ]
    with pytest.raises(Refused, match="No space left on device"):
        apply(changes, home, fix="f", code="C")
    names = {path.name for path in small_disk.iterdir()} - {"home"}
    assert names == {"small.py", "large.py"}
    assert (small_disk / "small.py").read_bytes() == b"old\n"
    assert history(home) == ()
    apply([changes[0], changes[2]], home, fix="f", code="C")
    blocks = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(b"x" * blocks.f_bavail * blocks.f_bsize)
    if journal_elsewhere:  # else the original file itself waits in the journal, and needs no room
        with pytest.raises(Refused, match=r"No space left on device.*everything is as it was"):
            undo(home)
        assert (small_disk / "small.py").read_bytes() == b"new\n"
        assert [change.now for change in history(home)[0].changes] == ["in place", "in place"]
        (small_disk / "filler").unlink()
    undo(home)
    (small_disk / "filler").unlink(missing_ok=True)
    assert {path.name for path in small_disk.iterdir()} - {"home"} == {"small.py", "large.py"}
