"""Applying and undoing, in the orders that occur in practice."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from verl_doctor.toolkit.change import (
    Change,
    NewFile,
    NewLink,
    RemoveFile,
    ReplaceFile,
    RunCommand,
    SetVariable,
)
from verl_doctor.toolkit.changes import command
from verl_doctor.toolkit.changes.apply import Refused, Transaction, apply, history, recover, undo


def put(root: Path, *changes: Change) -> Transaction | None:
    return apply(changes, root / ".verl-doctor", fix="repair", code="VLLM101")


def states(root: Path) -> list[str]:
    return [transaction.state for transaction in history(root / ".verl-doctor")]


def now(root: Path) -> list[list[str]]:
    return [[change.now for change in transaction.changes] for transaction in history(root / ".verl-doctor")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "engine.py").write_bytes(b"old\n")
    (tmp_path / "worker.py").write_bytes(b"work\n")
    return tmp_path


ENGINE, WORKER, HOME = "engine.py", "worker.py", ".verl-doctor"


def test_apply_changes_all_files_and_undo_restores_them(root: Path) -> None:
    done = put(
        root,
        ReplaceFile(root / ENGINE, b"old\n", b"new\n"),
        NewFile(root / "a/b/env.sh", b"export A=1\n", 0o600),
    )
    assert done is not None
    assert (done.id, done.state, done.fix, done.code) == ("0001", "applied", "repair", "VLLM101")
    assert [change.now for change in done.changes] == ["in place", "in place"]
    assert (root / ENGINE).read_bytes() == b"new\n"
    assert (root / "a/b/env.sh").read_bytes() == b"export A=1\n"
    assert (root / "a/b/env.sh").stat().st_mode & 0o7777 == 0o600
    assert [transaction.state for transaction in undo(root / HOME)] == ["undone"]
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert sorted(path.name for path in root.iterdir()) == [HOME, ENGINE, WORKER]
    assert now(root) == [["restored", "restored"]]


def test_journal_is_ignored_by_git(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    assert (root / HOME / ".gitignore").read_text() == "*\n"


def test_second_apply_does_nothing(root: Path) -> None:
    change = ReplaceFile(root / ENGINE, b"old\n", b"new\n")
    assert put(root, change, NewFile(root / "n", b"n")) is not None
    inode = (root / ENGINE).stat().st_ino
    assert put(root, change, NewFile(root / "n", b"n")) is None
    assert (root / ENGINE).stat().st_ino == inode
    assert len(history(root / HOME)) == 1


def test_changes_already_in_place_are_left_out_of_the_transaction(root: Path) -> None:
    (root / WORKER).write_bytes(b"worked\n")
    done = put(
        root,
        ReplaceFile(root / WORKER, b"work\n", b"worked\n"),
        ReplaceFile(root / ENGINE, b"old\n", b"new\n"),
    )
    assert done is not None
    assert [change.path for change in done.changes] == [str(root / ENGINE)]


def test_plan_already_in_place_creates_no_journal(root: Path) -> None:
    assert put(root, ReplaceFile(root / ENGINE, b"whatever", b"old\n")) is None
    assert not (root / HOME).exists()


def test_binary_content_and_line_endings_are_preserved(root: Path) -> None:
    old, new = b"\xe9 = 1\r\n\x00\r", b"\xe9 = 2\r\n\x00\r"
    (root / ENGINE).write_bytes(old)
    put(root, ReplaceFile(root / ENGINE, old, new))
    assert (root / ENGINE).read_bytes() == new
    undo(root / HOME)
    assert (root / ENGINE).read_bytes() == old


def test_file_names_that_are_not_utf8(root: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9\n.py"))
    put(root, NewFile(path, b"x"))
    assert now(root) == [["in place"]]
    undo(root / HOME)
    assert not path.exists()


def test_file_changed_since_the_plan_is_refused_with_a_diff(root: Path) -> None:
    (root / WORKER).write_bytes(b"mine\n")
    with pytest.raises(Refused, match=r"worker.py was changed since the plan was made(.|\n)*-work\n\+mine"):
        put(
            root,
            ReplaceFile(root / ENGINE, b"old\n", b"new\n"),
            ReplaceFile(root / WORKER, b"work\n", b"new\n"),
        )
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert not (root / HOME).exists()


def test_long_diff_is_truncated(root: Path) -> None:
    (root / ENGINE).write_bytes(b"".join(b"%d\n" % number for number in range(500)))
    with pytest.raises(Refused, match=r"and \d+ more lines") as refused:
        put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    assert len(str(refused.value).splitlines()) < 50


def test_new_file_does_not_overwrite_an_existing_one(root: Path) -> None:
    with pytest.raises(Refused, match=r"engine.py exists already with another content"):
        put(root, NewFile(root / ENGINE, b"mine"))


def test_missing_file_cannot_be_replaced(root: Path) -> None:
    with pytest.raises(Refused, match=r"gone.py no longer exists"):
        put(root, ReplaceFile(root / "gone.py", b"old\n", b"new\n"))


def test_new_file_below_a_regular_file_is_refused(root: Path) -> None:
    with pytest.raises(Refused, match=r"engine.py is not a folder"):
        put(root, NewFile(root / ENGINE / "x", b"x"))


def test_link_is_created_with_its_folders_and_undo_removes_both(root: Path) -> None:
    change = NewLink(root / "lib/cuda/libcuda.so", root / ENGINE)
    done = put(root, change)
    assert done is not None
    assert [(made.kind, made.now) for made in done.changes] == [("new_link", "in place")]
    assert (root / "lib/cuda/libcuda.so").readlink() == root / ENGINE
    assert put(root, change) is None
    undo(root / HOME)
    assert not (root / "lib").exists()
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert now(root) == [["restored"]]


def test_undo_restores_a_removed_file_with_its_metadata(root: Path) -> None:
    (root / ENGINE).chmod(0o640)
    before = (root / ENGINE).stat()
    renamed = [NewFile(root / "own.py", b"old\n"), RemoveFile(root / ENGINE, b"old\n")]
    done = put(root, *renamed)
    assert done is not None
    assert [(change.kind, change.now) for change in done.changes][1] == ("removed_file", "in place")
    assert not (root / ENGINE).exists()
    assert put(root, *renamed) is None
    undo(root / HOME)
    after = (root / ENGINE).stat()
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert (after.st_mode, after.st_mtime_ns, after.st_ino) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_ino,
    )
    assert not (root / "own.py").exists()


def test_undo_does_not_overwrite_a_new_file_with_the_removed_one(root: Path) -> None:
    put(root, RemoveFile(root / ENGINE, b"old\n"))
    (root / ENGINE).write_bytes(b"mine\n")
    with pytest.raises(Refused, match=r"engine.py exists again with other content"):
        undo(root / HOME)
    assert (root / ENGINE).read_bytes() == b"mine\n"
    with pytest.raises(Refused, match="was changed since the plan was made"):
        put(root, RemoveFile(root / ENGINE, b"old\n"))


def test_relative_link_is_created_as_planned(root: Path) -> None:
    put(root, NewLink(root / "lib/link", Path("../engine.py")))
    assert (root / "lib/link").readlink() == Path("../engine.py")
    assert (root / "lib/link").read_bytes() == b"old\n"


def test_link_does_not_overwrite_an_existing_file(root: Path) -> None:
    (root / "elsewhere").symlink_to(WORKER)
    for name in (WORKER, "elsewhere"):
        with pytest.raises(Refused, match=rf"{name} exists already and is not the link to .*engine.py"):
            put(root, NewLink(root / name, root / ENGINE))
    assert not (root / HOME).exists()


def test_broken_link_is_refused(root: Path) -> None:
    with pytest.raises(Refused, match=r"would be a broken link: .*gone.so"):
        put(root, NewLink(root / "libcuda.so", root / "gone.so"))


def test_undo_keeps_a_link_that_was_redirected_later(root: Path) -> None:
    put(root, NewLink(root / "lib/link", root / ENGINE))
    (root / "lib/link").unlink()
    (root / "lib/link").symlink_to(root / WORKER)
    with pytest.raises(Refused, match=r"now leads to .*worker.py; the doctor made it lead to .*engine.py"):
        undo(root / HOME)
    (root / "lib/link").unlink()
    (root / "lib/link").write_bytes(b"mine")
    with pytest.raises(Refused, match="is no longer a link"):
        undo(root / HOME)
    assert (root / "lib/link").read_bytes() == b"mine"


def test_undo_with_a_removed_link_restores_the_rest(root: Path) -> None:
    put(root, NewLink(root / "lib/link", root / ENGINE), ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    (root / "lib/link").unlink()
    undo(root / HOME)
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert not (root / "lib").exists()


def test_variable_cannot_be_applied_as_a_file_change(root: Path) -> None:
    with pytest.raises(Refused, match="--output-env DIR"):
        put(root, SetVariable("OMP_NUM_THREADS", "8", "eight cores for each worker"))


def test_plan_that_names_a_file_twice_is_refused(root: Path) -> None:
    (root / "link.py").symlink_to(ENGINE)
    with pytest.raises(Refused, match="twice"):
        put(root, ReplaceFile(root / ENGINE, b"old\n", b"1"), ReplaceFile(root / "link.py", b"old\n", b"2"))


def test_undo_refuses_and_shows_later_edits_as_a_diff(root: Path) -> None:
    put(
        root,
        ReplaceFile(root / ENGINE, b"old\n", b"new\n"),
        ReplaceFile(root / WORKER, b"work\n", b"worked\n"),
    )
    (root / ENGINE).write_bytes(b"new\nand theirs\n")
    with pytest.raises(Refused, match=r"engine.py was edited since:(.|\n)*\+and theirs"):
        undo(root / HOME)
    assert (root / ENGINE).read_bytes() == b"new\nand theirs\n"
    assert (root / WORKER).read_bytes() == b"worked\n"
    assert states(root) == ["applied"]
    assert now(root) == [["edited since", "in place"]]
    (root / ENGINE).write_bytes(b"new\n")
    undo(root / HOME)
    assert (root / ENGINE).read_bytes() == b"old\n"


def test_undo_prints_the_path_of_the_original_of_a_deleted_file(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    (root / ENGINE).unlink()
    with pytest.raises(Refused, match=r"engine.py is gone; its original content is .*0.before"):
        undo(root / HOME)


def test_manually_restored_file_counts_as_undone(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"), NewFile(root / "n", b"n"))
    (root / ENGINE).write_bytes(b"old\n")
    (root / "n").unlink()
    undo(root / HOME)
    assert states(root) == ["undone"]


def test_undo_keeps_a_later_mode_change(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    (root / ENGINE).chmod(0o755)
    undo(root / HOME)
    assert (root / ENGINE).stat().st_mode & 0o7777 == 0o755


def test_undo_keeps_other_files_in_a_folder_that_apply_created(root: Path) -> None:
    put(root, NewFile(root / "new/ours", b""))
    (root / "new/theirs").write_bytes(b"")
    undo(root / HOME)
    assert [path.name for path in (root / "new").iterdir()] == ["theirs"]


def test_undo_in_any_order_removes_folders_that_apply_created(root: Path) -> None:
    put(root, NewFile(root / "new/first.py", b""))
    put(root, NewFile(root / "new/second.py", b""))
    (root / "new/__pycache__").mkdir()
    (root / "new/__pycache__/first.cpython-311.pyc").write_bytes(b"")
    undo(root / HOME, "1")
    undo(root / HOME, "2")
    assert not (root / "new").exists()


def test_second_undo_is_reported(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    undo(root / HOME)
    with pytest.raises(Refused, match="nothing to undo: everything is already undone"):
        undo(root / HOME)
    with pytest.raises(Refused, match="0001 is already undone"):
        undo(root / HOME, "0001")


def test_undo_without_a_journal_is_refused_and_creates_none(root: Path) -> None:
    with pytest.raises(Refused, match="nothing to undo"):
        undo(root / HOME)
    recover(root / HOME)
    assert history(root / HOME) == ()
    assert not (root / HOME).exists()


@pytest.mark.parametrize("identifier", ["2", "0009", "x", "", "-1", "٣", "9" * 5000])
def test_unknown_transaction_is_named(root: Path, identifier: str) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    with pytest.raises(Refused, match="no transaction"):
        undo(root / HOME, identifier)


def test_interleaved_transactions_are_undone_newest_first(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    put(root, ReplaceFile(root / WORKER, b"work\n", b"worked\n"))
    put(root, ReplaceFile(root / ENGINE, b"new\n", b"newer\n"))
    assert now(root) == [["changed again by 0003"], ["in place"], ["in place"]]
    with pytest.raises(Refused, match=r"0001 cannot be undone before 0003.*undo 0003 first"):
        undo(root / HOME, "1")
    undo(root / HOME, "3")
    undo(root / HOME, "0001")
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert (root / WORKER).read_bytes() == b"worked\n"
    assert states(root) == ["undone", "applied", "undone"]


def test_everything_is_undone_newest_first(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    put(root, ReplaceFile(root / ENGINE, b"new\n", b"newer\n"))
    put(root, NewFile(root / "n", b""))
    assert [transaction.id for transaction in undo(root / HOME, everything=True)] == ["0003", "0002", "0001"]
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert undo(root / HOME, everything=True) == []


def test_undo_all_continues_after_a_refusal(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    put(root, ReplaceFile(root / WORKER, b"work\n", b"worked\n"))
    (root / WORKER).write_bytes(b"theirs\n")
    with pytest.raises(Refused, match=r"worker.py was edited since(.|\n)*undone: 0001"):
        undo(root / HOME, everything=True)
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert (root / WORKER).read_bytes() == b"theirs\n"


def test_repair_can_be_applied_again_after_its_undo(root: Path) -> None:
    change = ReplaceFile(root / ENGINE, b"old\n", b"new\n")
    put(root, change)
    undo(root / HOME)
    again = put(root, change)
    assert again is not None
    assert again.id == "0002"
    assert states(root) == ["undone", "applied"]


def test_command_runs_and_cannot_be_undone(root: Path) -> None:
    done = put(
        root, RunCommand((sys.executable, "-c", f"open({str(root / 'made')!r}, 'x')"), "it makes a file")
    )
    assert done is not None
    assert [change.now for change in done.changes] == ["cannot be undone"]
    assert (root / "made").exists()
    with pytest.raises(Refused, match=r"0001 ran .*which cannot be undone"):
        undo(root / HOME)
    assert undo(root / HOME, everything=True) == []


def test_command_output_goes_to_stderr(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    put(root, RunCommand(("echo", "hello $HOME"), "it speaks"))
    assert capfd.readouterr() == ("", "hello $HOME\n")


def test_failed_command_reverts_the_files(root: Path) -> None:
    with pytest.raises(
        Refused, match=r"`false` ended with exit code 1.*files were undone, .*effects of the command were not"
    ):
        put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"), RunCommand(("false",), "it fails"))
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert states(root) == ["failed"]
    with pytest.raises(Refused, match="0001 failed"):
        undo(root / HOME, "1")
    with pytest.raises(Refused, match="nothing to undo"):
        undo(root / HOME)


def test_nonexistent_command_is_refused_before_anything_changes(root: Path) -> None:
    with pytest.raises(Refused, match="no-such-program is not a program"):
        put(root, RunCommand(("no-such-program",), "why"), ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    assert not (root / HOME).exists()


def test_files_around_a_command_are_undone(root: Path) -> None:
    put(root, RunCommand(("true",), "why"), ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    (undone,) = undo(root / HOME)
    assert [change.now for change in undone.changes] == ["cannot be undone", "restored"]
    assert (root / ENGINE).read_bytes() == b"old\n"


def test_ctrl_c_reverts_everything(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        assert (root / ENGINE).read_bytes() == b"new\n"
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"), RunCommand(("true",), "why"))
    assert (root / ENGINE).read_bytes() == b"old\n"
    assert history(root / HOME) == ()


def half_way(root: Path) -> None:
    """The first of two transactions is complete, the second was killed between its two files."""
    put(root, NewFile(root / "first", b""))
    put(
        root,
        ReplaceFile(root / ENGINE, b"old\n", b"new\n"),
        ReplaceFile(root / WORKER, b"work\n", b"worked\n"),
    )
    (root / WORKER).write_bytes(b"work\n")
    (root / HOME / "0002-applied").rename(root / HOME / "0002-applying")


@pytest.mark.parametrize("identifier", [None, "2"])
def test_undo_after_a_crash_reverts_only_the_interrupted_transaction(
    root: Path, identifier: str | None
) -> None:
    half_way(root)
    assert states(root) == ["applied", "interrupted"]
    assert [transaction.id for transaction in undo(root / HOME, identifier)] == ["0002"]
    assert states(root) == ["applied", "undone"]
    assert (root / ENGINE).read_bytes() == b"old\n"


def test_apply_after_a_crash_starts_from_the_old_files(root: Path) -> None:
    half_way(root)
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"other\n"))
    assert states(root) == ["applied", "undone", "applied"]
    assert (root / ENGINE).read_bytes() == b"other\n"


def test_file_edited_after_a_crash_is_never_overwritten(root: Path) -> None:
    half_way(root)
    (root / ENGINE).write_bytes(b"theirs\n")
    recover(root / HOME)
    assert states(root) == ["applied", "interrupted"]
    with pytest.raises(Refused, match=r"engine\.py was edited since:"):
        undo(root / HOME)
    undo(root / HOME, "1")
    put(root, ReplaceFile(root / WORKER, b"work\n", b"again\n"))
    assert (root / ENGINE).read_bytes() == b"theirs\n"
    assert states(root) == ["undone", "interrupted", "applied"]
    (root / ENGINE).write_bytes(b"old\n")
    undo(root / HOME, everything=True)
    assert states(root) == ["undone", "undone", "undone"]


def test_history_writes_nothing(root: Path) -> None:
    put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n"))
    before = {path: path.stat().st_ctime_ns for path in root.rglob("*")}
    (entry,) = history(root / HOME)
    assert {path: path.stat().st_ctime_ns for path in root.rglob("*")} == before
    assert entry.time.endswith("Z")
    assert (entry.folder / "0.before").read_bytes() == b"old\n"


def test_apply_and_undo_remove_stale_bytecode(root: Path) -> None:
    stale = [
        root / "__pycache__" / f"engine.{tag}.pyc" for tag in ("cpython-311", "cpython-310.opt-1", "pypy39")
    ]
    others = [
        root / "__pycache__" / name
        for name in ("engine2.cpython-311.pyc", "engine.pyc.bak", "worker.cpython-311.pyc")
    ]
    (root / "__pycache__").mkdir()
    for step in (
        lambda: put(root, ReplaceFile(root / ENGINE, b"old\n", b"new\n")),
        lambda: undo(root / HOME),
    ):
        for cache in stale + others:
            cache.write_bytes(b"")
        step()
        assert not any(cache.exists() for cache in stale)
        assert all(cache.exists() for cache in others)


def test_bytecode_next_to_a_link_and_next_to_its_target_is_removed(root: Path) -> None:
    for folder in ("link", "real"):
        (root / folder / "__pycache__").mkdir(parents=True)
        (root / folder / "__pycache__/a.cpython-311.pyc").write_bytes(b"")
    (root / "real/a.py").write_bytes(b"old\n")
    (root / "link/a.py").symlink_to("../real/a.py")
    put(root, ReplaceFile(root / "link/a.py", b"old\n", b"new\n"))
    assert not list(root.rglob("*.pyc"))


def test_python_runs_the_new_code_despite_equal_size_and_mtime(root: Path) -> None:
    module = root / "answer.py"
    module.write_bytes(b"print(1)\n")
    os.utime(module, (4e9, 4e9))
    change = ReplaceFile(module, b"print(1)\n", b"print(2)\n")
    ahead = module.stat().st_mtime
    put(root, change)
    assert int(module.stat().st_mtime) > ahead
    undo(root / HOME)
    assert module.stat().st_mtime == ahead
