"""A change is undone beside later edits of its file, or the edits touch its lines and it stays."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from verl_doctor.toolkit.change import Change, NewFile, RemoveFile, ReplaceFile
from verl_doctor.toolkit.changes import journal
from verl_doctor.toolkit.changes.apply import PartlyUndoneError, apply, history, undo_together
from verl_doctor.toolkit.changes.later_edits import both
from verl_doctor.toolkit.changes.records import new_run
from verl_doctor.toolkit.system.errors import Refused

OLD, NEW = b"one\ntwo\nthree\nfour\n", b"one\n# two  # mark\n2\nthree\nfour\n"


@pytest.mark.parametrize(
    ("edited", "restored"),
    [
        (NEW, OLD),
        (NEW + b"mine\n", OLD + b"mine\n"),
        (b"mine\n" + NEW, b"mine\n" + OLD),
        (NEW.replace(b"three\n", b"drei\n"), OLD.replace(b"three\n", b"drei\n")),
        (NEW.replace(b"2\n", b"2\nmine\n"), OLD.replace(b"two\n", b"two\nmine\n")),
        (OLD, OLD),
        (OLD + b"mine\n", OLD + b"mine\n"),
        (NEW.replace(b"2\n", b"3\n"), None),
        (NEW.replace(b"2\n", b"mine\n2\n"), None),
        (b"", None),
        (NEW.replace(b"\n", b"\r\n"), None),
    ],
)
def test_lines_of_the_change_go_and_edits_stay(edited: bytes, restored: bytes | None) -> None:
    assert both(NEW, OLD, edited) == restored


def test_lines_that_the_change_removed_return_in_their_place() -> None:
    assert both(b"a\nd\n", b"a\nb\nd\n", b"a\nd\ne\n") == b"a\nb\nd\ne\n"
    assert both(b"a\nd\n", b"a\nb\nd\n", b"a\nc\nd\n") is None


def test_line_is_never_put_behind_one_whose_end_was_removed() -> None:
    assert both(b"x\ny\n", b"x\ny\nz\n", b"x\ny") is None
    assert both(b"x\ny\n", b"w\nx\ny\n", b"x\ny") == b"w\nx\ny"


@pytest.mark.parametrize("seed", range(50))
def test_edits_elsewhere_never_prevent_it(seed: int) -> None:
    """Any edits of one half of the lines, and any change of the other half."""
    rand = random.Random(seed)
    lines = [b"%d\n" % number for number in range(40)]

    def changed(half: list[bytes]) -> list[bytes]:
        for _ in range(rand.randrange(1, 5)):
            place = rand.randrange(1, len(half) - 1)
            half = [
                *half[:place],
                *[b"x%d\n" % rand.randrange(99)] * rand.randrange(3),
                *half[place + rand.randrange(2) :],
            ]
        return half

    ours, theirs = changed(lines[:20]), changed(lines[20:])
    first, second = lines[:20], lines[20:]
    assert both(b"".join([*ours, *second]), b"".join(lines), b"".join([*ours, *theirs])) == b"".join(
        [*first, *theirs]
    )


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A file that two changes of a run edited, and the journal."""
    file, home = tmp_path / "run.sh", tmp_path / "journal"
    file.write_bytes(b"a\nb\nc\nd\n")
    run = new_run((home,), tmp_path)
    apply([ReplaceFile(file, b"a\nb\nc\nd\n", b"A\nb\nc\nd\n")], home, fix="f", code="ENV901", run=run)
    apply([ReplaceFile(file, b"A\nb\nc\nd\n", b"A\nb\nC\nd\n")], home, fix="f", code="ENV902", run=run)
    return file, home


def test_all_changes_of_a_run_are_undone_beside_edits(two: tuple[Path, Path]) -> None:
    file, home = two
    file.chmod(0o750)
    file.write_bytes(b"A\nb\nC\nd\nmine\n")
    undone = undo_together([(home, "1"), (home, "2")], keep_edits=True)
    assert file.read_bytes() == b"a\nb\nc\nd\nmine\n"
    assert file.stat().st_mode & 0o777 == 0o750
    assert [(done.id, done.state) for done in undone] == [("0002", "undone"), ("0001", "undone")]
    assert [change.now for done in undone for change in done.changes] == ["restored, later edits kept"] * 2


@pytest.mark.parametrize(
    ("made", "changed"),
    [(NewFile, ReplaceFile), (ReplaceFile, RemoveFile)],
)
def test_file_that_was_not_edited_is_undone_too(tmp_path: Path, made: type, changed: type) -> None:
    """A file that one change of a run created and another changed, or that one changed and another removed."""
    file, home, run = tmp_path / "env.sh", tmp_path / "journal", new_run((tmp_path / "journal",), tmp_path)
    old, middle, new = b"a\n", b"a\nb\n", b"a\nb\nc\n"
    if made is ReplaceFile:
        file.write_bytes(old)
    first: Change = NewFile(file, middle) if made is NewFile else ReplaceFile(file, old, middle)
    second: Change = ReplaceFile(file, middle, new) if changed is ReplaceFile else RemoveFile(file, middle)
    for number, change in enumerate((first, second)):
        apply([change], home, fix="f", code=f"ENV90{number}", run=run)
    undone = undo_together([(home, "1"), (home, "2")], keep_edits=True)
    assert [(done.id, done.state) for done in undone] == [("0002", "undone"), ("0001", "undone")]
    assert [change.now for done in undone for change in done.changes] == ["restored"] * 2
    assert file.exists() == (made is ReplaceFile)
    assert made is NewFile or file.read_bytes() == old


@pytest.mark.parametrize("keep_edits", [True, False])
def test_file_that_was_replaced_by_a_link_is_named_with_the_next_step(
    two: tuple[Path, Path], *, keep_edits: bool
) -> None:
    file, home = two
    elsewhere = file.with_name("elsewhere")
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    with pytest.raises(Refused) as raised:
        undo_together([(home, "2")], keep_edits=keep_edits)
    text = str(raised.value)
    assert text.startswith("0002 was not undone")
    assert f"{file} is now a link to {elsewhere}, which the doctor does not change" in text
    kept = text.partition("or restore it from ")[2].removesuffix(" by hand")
    assert Path(kept).read_bytes() == b"A\nb\nc\nd\n"
    file.unlink()
    elsewhere.rename(file)
    assert [done.id for done in undo_together([(home, "2")], keep_edits=keep_edits)] == ["0002"]


def test_older_change_waits_for_a_newer_one_that_stays(two: tuple[Path, Path]) -> None:
    file, home = two
    file.write_bytes(b"A\nb\nmine\nd\n")
    with pytest.raises(
        PartlyUndoneError,
        match=r"touch lines that the repair changed(.|\n)*0001 was not undone: 0002, which changed",
    ) as raised:
        undo_together([(home, "1"), (home, "2")], keep_edits=True)
    assert "undo 0002 first" not in str(raised.value)  # it is undone by the same command
    assert file.read_bytes() == b"A\nb\nmine\nd\n"
    assert [done.state for done in history(home)] == ["applied", "applied"]


def test_newer_change_is_undone_and_an_edited_older_one_stays(two: tuple[Path, Path]) -> None:
    file, home = two
    file.write_bytes(b"mine\nb\nC\nd\n")
    with pytest.raises(PartlyUndoneError, match="0001 was not undone") as raised:
        undo_together([(home, "1"), (home, "2")], keep_edits=True)
    assert "-A\n+mine\n" in str(raised.value)
    assert "+C" not in str(raised.value)  # the newer change is not the user's edit
    assert file.read_bytes() == b"mine\nb\nc\nd\n"
    assert [done.id for done in raised.value.undone] == ["0002"]
    assert [done.state for done in history(home)] == ["applied", "undone"]


def test_undoing_that_was_killed_after_the_merge_is_settled(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, home = two
    file.write_bytes(b"A\nb\nC\nd\nmine\n")
    mark = journal.mark

    def killed(entry: journal.Entry, state: journal.State) -> journal.Entry:
        if state == "undone":
            raise KeyboardInterrupt
        return mark(entry, state)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "mark", killed)
        patch.setattr("verl_doctor.toolkit.changes.undoing._redo", lambda _: "killed")
        with pytest.raises(KeyboardInterrupt):
            undo_together([(home, "2")], keep_edits=True)
    assert file.read_bytes() == b"A\nb\nc\nd\nmine\n"
    undo_together([(home, "1"), (home, "2")], keep_edits=True)
    assert file.read_bytes() == b"a\nb\nc\nd\nmine\n"
    assert [done.state for done in history(home)] == ["undone", "undone"]


def test_merge_is_taken_back_if_an_older_part_fails(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, home = two
    edited = b"A\nb\nC\nd\nmine\n"
    file.write_bytes(edited)
    mark = journal.mark

    def failing(entry: journal.Entry, state: journal.State) -> journal.Entry:
        if (entry.id, state) == ("0001", "undone"):
            raise OSError(28, "No space left on device")
        return mark(entry, state)

    monkeypatch.setattr(journal, "mark", failing)
    with pytest.raises(Refused, match="everything is as it was"):
        undo_together([(home, "1"), (home, "2")], keep_edits=True)
    assert file.read_bytes() == edited
    assert [done.state for done in history(home)] == ["applied", "applied"]
