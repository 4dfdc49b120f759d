"""Journal entries about who changed a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from verl_doctor.toolkit.change import ReplaceFile
from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.collectors.packages.journal import JournalHistory, journal_history
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.target import Target, journal_homes


def environment(folder: Path) -> Target:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return Target(folder / "bin" / "python", "--python")


def read(target: Target) -> JournalHistory:
    found = journal_history.collect(target)
    assert isinstance(found, JournalHistory)
    return found


def test_missing_journal_reads_as_empty(tmp_path: Path) -> None:
    assert read(environment(tmp_path / "env")) == JournalHistory()


def test_author_of_a_repair_is_known_until_its_undo(tmp_path: Path) -> None:
    target = environment(tmp_path / "env")
    home, _ = journal_homes(target)
    file = tmp_path / "env" / "a.py"
    file.write_bytes(b"old\n")
    apply.apply([ReplaceFile(file, b"old\n", b"new\n")], home, fix="new-for-old", code="VLLM101")
    new = hashlib.sha256(b"new\n").hexdigest()
    author = read(target).author(str(file), new)
    assert author is not None
    assert (author.fix, author.code, author.state) == ("new-for-old", "VLLM101", "applied")
    assert read(target).author(str(file), hashlib.sha256(b"newer\n").hexdigest()) is None
    apply.undo(home)
    assert read(target).author(str(file), new) is None


def test_damaged_journal_is_unknown(tmp_path: Path) -> None:
    target = environment(tmp_path / "env")
    home, _ = journal_homes(target)
    (home / "0001-applied").mkdir(parents=True)
    (home / "0001-applied" / "entry.json").write_bytes(b"\xff")
    assert isinstance(journal_history.collect(target), Unknown)
