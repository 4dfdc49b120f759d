"""A journal that another user could have written, or that names files elsewhere, is refused, and nothing is written."""

from __future__ import annotations

import json
import os
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash.children import NOBODY, run_as
from support.kept import cannot_run

from verl_doctor.toolkit.change import NewFile, ReplaceFile
from verl_doctor.toolkit.changes.apply import Refused, apply, history, recover, undo, undo_together

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def environment() -> Iterator[Path]:
    """An environment with one repair, which other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        prefix = Path(folder, "env")
        prefix.mkdir()
        (prefix / "pyvenv.cfg").touch()
        (prefix / "a.py").write_bytes(b"old\n")
        put(prefix, "a.py")
        yield prefix


def put(prefix: Path, name: str) -> None:
    apply([ReplaceFile(prefix / name, b"old\n", b"new\n")], home(prefix), fix="repair", code="VLLM101")


def home(prefix: Path) -> Path:
    return prefix / ".verl-doctor"


def every_use(prefix: Path) -> list[Callable[[], object]]:
    return [
        lambda: history(home(prefix)),
        lambda: undo(home(prefix)),
        lambda: undo_together([(home(prefix), "1")]),
        lambda: recover(home(prefix)),
        lambda: apply([NewFile(prefix / "b.py", b"")], home(prefix), fix="f", code="C"),
    ]


@pytest.mark.parametrize("umask", [0, 0o002, 0o077, 0o777])
def test_journal_is_private_under_every_umask(environment: Path, umask: int) -> None:
    other = environment.with_name("other")
    other.mkdir()
    (other / "a.py").write_bytes(b"old\n")
    before = os.umask(umask)
    try:
        put(other, "a.py")
    finally:
        os.umask(before)
    entry = home(other) / "0001-applied"
    for folder in (home(other), entry):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in (home(other) / "lock", entry / "entry.json", entry / "0.before", entry / "0.after"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    undo(home(other))
    assert (other / "a.py").read_bytes() == b"old\n"


def test_readable_journal_of_ours_is_made_private(environment: Path) -> None:
    home(environment).chmod(0o755)
    apply([NewFile(environment / "b.py", b"")], home(environment), fix="f", code="C")
    assert stat.S_IMODE(home(environment).stat().st_mode) == 0o700


@pytest.mark.parametrize("place", ["", "0001-applied", "0001-applied/entry.json"])
def test_world_writable_journal_is_refused_with_owner_and_mode(environment: Path, place: str) -> None:
    open_to_all = home(environment) / place
    open_to_all.chmod(0o777)
    for use in every_use(environment):
        with pytest.raises(Refused, match=r"not trusted.*\(owner \w+, mode 0777\).*chmod -R go-w"):
            use()
    assert (environment / "a.py").read_bytes() == b"new\n"
    assert not (environment / "b.py").exists()


@pytest.mark.parametrize("place", ["", "0001-applied", "0001-applied/entry.json"])
def test_journal_writable_through_an_access_list_is_refused(environment: Path, place: str) -> None:
    whole = 0xFFFFFFFF
    entries = ((1, 7, whole), (2, 6, NOBODY), (4, 0, whole), (16, 7, whole), (32, 0, whole))
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(home(environment) / place, "system.posix_acl_access", packed)
    except OSError:
        cannot_run("this file system has no access lists")
    for use in every_use(environment):
        with pytest.raises(Refused, match=rf"the access list of .* lets user {NOBODY} write .*chmod -R go-w"):
            use()
    assert (environment / "a.py").read_bytes() == b"new\n"


@as_root
@pytest.mark.parametrize("place", ["", "0001-applied", "0001-applied/entry.json"])
def test_journal_of_another_user_is_refused(environment: Path, place: str) -> None:
    os.chown(home(environment) / place, NOBODY, NOBODY)
    for use in every_use(environment):
        with pytest.raises(Refused, match=rf"belongs to user {NOBODY} .*run this as user {NOBODY}"):
            use()
    assert (environment / "a.py").read_bytes() == b"new\n"


@as_root
def test_entry_planted_by_another_user_is_refused(environment: Path) -> None:
    """As on 0.1.0 under umask 000: the folder was writable by all, and root's undo overwrote a file with its content."""
    home(environment).chmod(0o777)
    secret = environment.with_name("root.txt")
    secret.write_bytes(b"new\n")

    def plant() -> None:
        forged = home(environment) / "0002-applying"
        forged.mkdir()
        document = json.loads((home(environment) / "0001-applied/entry.json").read_text())
        document["changes"][0] |= {"file": str(secret), "path": str(secret)}
        (forged / "entry.json").write_text(json.dumps(document))
        (forged / "0.before").write_bytes(b"old\n")

    (home(environment) / "0001-applied").chmod(0o755)
    (home(environment) / "0001-applied/entry.json").chmod(0o644)
    assert run_as(NOBODY, plant) == ""
    home(environment).chmod(0o700)  # closed again, the forged entry is in it all the same
    for use in every_use(environment):
        with pytest.raises(Refused, match=f"belongs to user {NOBODY}"):
            use()
    assert secret.read_bytes() == b"new\n"


def forged(environment: Path, state: str, outside: Path) -> None:
    """A journal shipped with the environment, for instance in an archive: it is ours, and names a file elsewhere."""
    entry = home(environment) / "0001-applied"
    document = json.loads((entry / "entry.json").read_text())
    document["changes"][0] |= {"file": str(outside), "path": str(outside)}
    (entry / "entry.json").write_text(json.dumps(document))
    (entry / "kept.0").unlink(missing_ok=True)
    entry.rename(entry.with_name(f"0001-{state}"))


@pytest.mark.parametrize("way", ["plain", "through a linked folder", "with dots"])
def test_journal_of_an_environment_cannot_name_files_elsewhere(environment: Path, way: str) -> None:
    outside = environment.with_name("bashrc")
    outside.write_bytes(b"new\n")
    spelt = {"plain": outside, "with dots": environment / "x/../../bashrc"}.get(
        way, environment / "out/bashrc"
    )
    if way == "through a linked folder":
        (environment / "out").symlink_to(environment.parent)
    (environment / "x").mkdir()
    forged(environment, "applied", spelt)
    for use in (lambda: undo(home(environment)), lambda: undo_together([(home(environment), "1")])):
        with pytest.raises(Refused, match=r"names .*bashrc, which is outside it.*--verl"):
            use()
    assert outside.read_bytes() == b"new\n"


def test_journal_may_name_files_in_a_tree_given_by_the_user(environment: Path) -> None:
    tree = environment.with_name("tree")
    tree.mkdir()
    (tree / "b.py").write_bytes(b"new\n")
    forged(environment, "applied", tree / "b.py")
    undo_together([(home(environment), "1")], named=[tree])
    assert (tree / "b.py").read_bytes() == b"old\n"


def test_forged_interrupted_entry_is_reported_and_left_alone(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = environment.with_name("bashrc")
    outside.write_bytes(b"new\n")
    forged(environment, "applying", outside)
    apply([NewFile(environment / "b.py", b"")], home(environment), fix="f", code="C")
    assert "was interrupted, and was not touched" in capsys.readouterr().err
    assert outside.read_bytes() == b"new\n"


def test_recovery_is_always_reported(environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = home(environment) / "0001-applied"
    entry.rename(entry.with_name("0001-applying"))
    apply([NewFile(environment / "b.py", b"")], home(environment), fix="f", code="C")
    printed = capsys.readouterr().err
    assert f"({home(environment)}/0001) was interrupted, and was undone: {environment / 'a.py'}" in printed
    assert (environment / "a.py").read_bytes() == b"old\n"


def test_interrupted_entry_with_later_edits_is_reported(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = home(environment) / "0001-applied"
    entry.rename(entry.with_name("0001-applying"))
    (environment / "a.py").write_bytes(b"mine\n")
    apply([NewFile(environment / "b.py", b"")], home(environment), fix="f", code="C")
    announced = capsys.readouterr().err
    assert "a.py, edited since; to keep these edits and settle this" in announced
    assert f"verl-doctor undo {home(environment)}/0001 --keep-edits" in announced
    assert (environment / "a.py").read_bytes() == b"mine\n"


def test_interrupted_entry_with_later_edits_is_resolved_once(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [environment / name for name in ("a.py", "b.py")]
    files[1].write_bytes(b"old\n")
    undo(home(environment))
    apply([ReplaceFile(file, b"old\n", b"new\n") for file in files], home(environment), fix="f", code="C")
    entry = home(environment) / "0002-applied"
    entry.rename(entry.with_name("0002-applying"))
    files[0].write_bytes(b"mine\n")
    with pytest.raises(Refused, match=r"edited since(.|\n)*\+mine"):
        undo_together([(home(environment), "2")])
    (settled,) = undo_together([(home(environment), "2")], keep_edits=True)
    assert [file.read_bytes() for file in files] == [b"mine\n", b"old\n"]
    assert [change.now for change in settled.changes] == ["edited since", "restored"]
    assert history(home(environment))[-1] == settled
    capsys.readouterr()
    apply([NewFile(environment / "c.py", b"")], home(environment), fix="f", code="C")
    assert capsys.readouterr().err == ""


def test_edits_of_repaired_lines_keep_the_repair_undoable(environment: Path) -> None:
    (environment / "a.py").write_bytes(b"mine\n")
    for keep_edits in (False, True):
        with pytest.raises(Refused, match=r"edited since(.|\n)*\+mine") as refused:
            undo_together([(home(environment), "1")], keep_edits=keep_edits)
        assert ("--keep-edits" in str(refused.value)) is False
        assert [done.state for done in history(home(environment))] == ["applied"]
        assert (environment / "a.py").read_bytes() == b"mine\n"
    (environment / "a.py").write_bytes(b"new\n")
    undo_together([(home(environment), "1")])
    assert (environment / "a.py").read_bytes() == b"old\n"


def test_change_outside_the_environment_is_not_journalled_in_it(environment: Path) -> None:
    with pytest.raises(Refused, match="is outside it"):
        apply([NewFile(environment.with_name("n"), b"")], home(environment), fix="f", code="C")
    assert not environment.with_name("n").exists()
