"""Environments of linked files: a repair changes this one alone, and undo restores everything."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.change import NewFile, ReplaceFile
from verl_doctor.toolkit.changes import links
from verl_doctor.toolkit.changes.apply import Refused, apply, undo

MODULE = "lib/python3.12/site-packages/vllm/engine.py"


@pytest.fixture
def top() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def source(top: Path) -> Path:
    """A file in the cache of an installer."""
    file = top / "cache/archive/vllm/engine.py"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"old\n")
    file.chmod(0o640)
    os.utime(file, ns=(1_600_000_000_123_456_789, 1_500_000_000_987_654_321))
    return file


def environment(top: Path, name: str, sign: str = "pyvenv.cfg") -> Path:
    prefix = top / name
    (prefix / MODULE).parent.mkdir(parents=True)
    (prefix / sign).mkdir() if sign == "conda-meta" else (prefix / sign).touch()
    return prefix


def put(prefix: Path, *, through_links: bool = False, module: str = MODULE) -> None:
    change = ReplaceFile(prefix / module, b"old\n", b"new\n")
    apply([change], prefix / ".verl-doctor", fix="repair", code="VLLM101", through_links=through_links)


def facts(path: Path) -> tuple[Any, ...]:
    """All of a file or link that undo gives back. Every use of a link sets its time of access, so that this is left out."""
    about = path.lstat()
    linked = path.is_symlink()
    times = (about.st_mtime_ns,) if linked else (about.st_mtime_ns, about.st_atime_ns)
    content = path.readlink() if linked else path.read_bytes()
    if not linked:
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    return (
        content,
        stat.S_IMODE(about.st_mode),
        about.st_uid,
        about.st_gid,
        about.st_nlink,
        about.st_ino,
        *times,
    )


@pytest.mark.parametrize("sign", ["pyvenv.cfg", "conda-meta"])
@pytest.mark.parametrize("relative", [False, True])
def test_linked_file_becomes_a_private_copy_and_undo_restores_the_link(
    top: Path, source: Path, sign: str, relative: bool
) -> None:
    a, b = environment(top, "a", sign), environment(top, "b", sign)
    for prefix in (a, b):
        target = os.path.relpath(source, (prefix / MODULE).parent) if relative else source
        (prefix / MODULE).symlink_to(target)
    before = [facts(path) for path in (a / MODULE, b / MODULE, source)]
    folder = (a / MODULE).parent.stat().st_mtime_ns
    put(a)
    assert (a / MODULE).read_bytes() == b"new\n"
    assert not (a / MODULE).is_symlink()
    assert stat.S_IMODE((a / MODULE).stat().st_mode) == 0o640
    assert [facts(path) for path in (b / MODULE, source)] == before[1:]
    undo(a / ".verl-doctor")
    assert [facts(path) for path in (a / MODULE, b / MODULE, source)] == before
    assert (a / MODULE).parent.stat().st_mtime_ns == folder


def test_through_links_changes_every_environment_and_undo_restores_all(top: Path, source: Path) -> None:
    a, b = environment(top, "a"), environment(top, "b")
    for prefix in (a, b):
        (prefix / MODULE).symlink_to(source)
    before = [facts(path) for path in (a / MODULE, b / MODULE, source)]
    change = ReplaceFile(a / MODULE, b"old\n", b"new\n")
    apply([change], top / "journal", fix="f", code="C", through_links=True)
    assert (a / MODULE).is_symlink()
    assert (b / MODULE).read_bytes() == b"new\n"
    undo(top / "journal")
    assert [facts(path) for path in (a / MODULE, b / MODULE, source)] == before


def linked_package(top: Path, source: Path) -> tuple[Path, Path]:
    """Two environments whose package is a link to the same folder, with a subfolder and a cache."""
    (source.parent / "inner").mkdir()
    (source.parent / "inner/core.py").write_bytes(b"old\n")
    (source.parent / "__pycache__").mkdir()
    (source.parent / "__pycache__/engine.cpython-312.pyc").write_bytes(b"cache")
    a, b = environment(top, "a"), environment(top, "b")
    for prefix in (a, b):
        (prefix / MODULE).parent.rmdir()
        (prefix / MODULE).parent.symlink_to(source.parent)
    return a, b


def everything(folder: Path) -> list[tuple[Any, ...]]:
    """All that lies below a folder."""
    found = sorted(path for path in folder.rglob("*") if ".verl-doctor" not in path.parts)
    return [
        (str(path), *facts(path)) if path.is_symlink() or path.is_file() else (str(path),) for path in found
    ]


INNER = "lib/python3.12/site-packages/vllm/inner/core.py"


def test_linked_package_becomes_a_folder_of_links_and_undo_restores_it(top: Path, source: Path) -> None:
    a, b = linked_package(top, source)
    before, folder = everything(top), (a / MODULE).parent.parent.stat().st_mtime_ns
    plan = [ReplaceFile(a / module, b"old\n", b"new\n") for module in (MODULE, INNER)]
    apply(plan, a / ".verl-doctor", fix="repair", code="VLLM101")
    assert [facts(prefix / module)[0] for prefix in (a, b) for module in (MODULE, INNER)] == [
        b"new\n",
        b"new\n",
        b"old\n",
        b"old\n",
    ]
    assert (a / MODULE).stat().st_mode == source.stat().st_mode
    assert not ((a / MODULE).parent / "__pycache__").exists()
    (made,) = undo(a / ".verl-doctor")
    assert {change.now for change in made.changes} == {"restored"}
    assert everything(top) == before
    assert (a / MODULE).parent.parent.stat().st_mtime_ns == folder


def test_later_repair_reaches_deeper_into_a_linked_package(top: Path, source: Path) -> None:
    a, _ = linked_package(top, source)
    before = everything(top)
    put(a)
    put(a, module=INNER)
    with pytest.raises(Refused, match="cannot be undone before 0002"):
        undo(a / ".verl-doctor", "0001")
    undo(a / ".verl-doctor", everything=True)
    assert everything(top) == before


def test_files_put_into_a_private_folder_are_not_lost(top: Path, source: Path) -> None:
    a, _ = linked_package(top, source)
    put(a)
    (a / MODULE).with_name("mine.py").write_bytes(b"mine\n")
    with pytest.raises(Refused, match=r"mine\.py is not the doctor's"):
        undo(a / ".verl-doctor")
    assert (a / MODULE).with_name("mine.py").read_bytes() == b"mine\n"
    (a / MODULE).with_name("mine.py").unlink()
    undo(a / ".verl-doctor")
    assert (a / MODULE).parent.is_symlink()


def test_linked_package_is_changed_in_place_on_request(top: Path, source: Path) -> None:
    a, b = linked_package(top, source)
    apply([ReplaceFile(a / MODULE, b"old\n", b"new\n")], top / "j", fix="f", code="C", through_links=True)
    assert (b / MODULE).read_bytes() == b"new\n"


def test_new_file_is_not_created_in_other_environments(top: Path, source: Path) -> None:
    a, b = linked_package(top, source)
    change = NewFile((a / MODULE).with_name("new.py"), b"new\n")
    with pytest.raises(Refused, match=rf"a link to the folder {source.parent}.*{b} would change too"):
        apply([change], a / ".verl-doctor", fix="f", code="C")
    assert not (b / MODULE).with_name("new.py").exists()


def test_link_within_the_environment_is_kept(top: Path) -> None:
    a = environment(top, "a")
    (a / "real.py").write_bytes(b"old\n")
    (a / MODULE).symlink_to(a / "real.py")
    put(a)
    assert (a / MODULE).is_symlink()
    assert (a / "real.py").read_bytes() == b"new\n"


def test_edited_private_copy_is_not_lost(top: Path, source: Path) -> None:
    a = environment(top, "a")
    (a / MODULE).symlink_to(source)
    put(a)
    (a / MODULE).write_bytes(b"mine\n")
    with pytest.raises(Refused, match=r"edited since(.|\n)*\+mine"):
        undo(a / ".verl-doctor")
    assert (a / MODULE).read_bytes() == b"mine\n"


@pytest.mark.parametrize(("now", "what"), [("other.py", "a link to"), ("", "not a regular file")])
def test_private_copy_that_was_replaced_is_to_be_linked_again(
    top: Path, source: Path, now: str, what: str
) -> None:
    a = environment(top, "a")
    (a / MODULE).symlink_to(source)
    put(a)
    (a / MODULE).unlink()
    if now:
        (top / now).write_bytes(b"other\n")
        (a / MODULE).symlink_to(top / now)
    else:
        (a / MODULE).mkdir()
    with pytest.raises(Refused, match=rf"is now {what}(.|\n)*or make it a link to {source} by hand"):
        undo(a / ".verl-doctor")


def test_undo_restores_a_hard_link(top: Path, source: Path) -> None:
    a, b = environment(top, "a"), environment(top, "b")
    for prefix in (a, b):
        os.link(source, prefix / MODULE)
    before = [facts(path) for path in (a / MODULE, b / MODULE, source)]
    put(a)
    assert source.stat().st_ino != (a / MODULE).stat().st_ino
    assert source.read_bytes() == b"old\n"
    undo(a / ".verl-doctor")
    assert [facts(path) for path in (a / MODULE, b / MODULE, source)] == before


def test_undo_does_not_relink_an_original_that_was_edited(top: Path, source: Path) -> None:
    a = environment(top, "a")
    os.link(source, a / MODULE)
    put(a)
    source.write_bytes(b"cache\n")
    undo(a / ".verl-doctor")
    assert (a / MODULE).read_bytes() == b"old\n"
    assert source.read_bytes() == b"cache\n"
    assert (a / MODULE).stat().st_mtime_ns == 1_500_000_000_987_654_321


def test_copy_keeps_the_times_where_the_original_cannot_be_kept(
    top: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_disk(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    a = environment(top, "a")
    (a / MODULE).write_bytes(b"old\n")
    os.utime(a / MODULE, ns=(1_600_000_000_000_000_001, 1_500_000_000_000_000_002))
    before = facts(a / MODULE)
    put(a)
    undo(a / ".verl-doctor")
    after = facts(a / MODULE)
    assert after[:5] + after[6:] == before[:5] + before[6:]


def test_plan_reports_links(top: Path, source: Path) -> None:
    a, b = environment(top, "a"), environment(top, "b")
    for prefix in (a, b):
        (prefix / MODULE).symlink_to(source)
    private = links.sentence(a / MODULE, through_links=False)
    assert "becomes a private copy, and undo restores the link" in private
    assert str(b) in private
    assert f"{b} will change too" in links.sentence(a / MODULE, through_links=True)
    assert links.sentence(source, through_links=False) == ""


def test_other_environments_that_use_a_tree_are_listed(top: Path) -> None:
    a, b, c = (environment(top, name) for name in "abc")
    tree = top / "checkout/verl"
    tree.mkdir(parents=True)
    (b / "lib/python3.12/site-packages/verl.pth").write_text(f"{tree.parent}\n")
    finder = c / "lib/python3.12/site-packages/__editable___verl_finder.py"
    finder.write_text(f"MAPPING = {{'verl': '{tree}'}}\n")
    assert links.using(tree, a) == (b, c)
