"""Files left out by `.gitignore`, compared with git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.packages.git_ignored import Ignored

PATTERNS = """\
# a comment
*.log
!keep.log
/top.txt
docs/*.html
logs/
**/deep/*.bin
a/**/z
data/**
file[0-9].txt
file[!a-c].dat
sp\\ ace
trailing   \n\
\\#hash
\\!bang
c?t
[z-a]
m*n*o*p
**/**/**/q
*.t*r.*
"""
FILES = (
    "a.log", "keep.log", "in/a.log", "top.txt", "in/top.txt", "docs/a.html", "docs/in/a.html", "logs/a", "in/logs/b",
    "x/logs", "deep/a.bin", "x/deep/a.bin", "x/deep/y/a.bin", "a/z", "a/b/z", "a/b/c/z", "data/x", "data/y/z",
    "file1.txt", "filex.txt", "filed.dat", "filea.dat", "sp ace", "trailing", "#hash", "!bang", "cat", "caat", "sub/own.tmp",
    "sub/x/own.tmp", "own.tmp", "sub/only", "sub/x/only", "mnop", "mxnxoxp", "mxnxo", "mnoopp", "q", "a/q", "a/b/q", "x.tar.gz", "x.t.gz", "in/y.tr.", "y.trx",
)  # fmt: skip
OF_SUB = "*.tmp\n/only\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text(PATTERNS)
    (tmp_path / "sub" / ".gitignore").write_text(OF_SUB)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def test_same_files_are_left_out_as_by_git(tree: Path) -> None:
    checked = subprocess.run(
        ["git", "check-ignore", "--stdin", "-z"], cwd=tree, input="\0".join(FILES), capture_output=True, text=True, check=False
    )  # fmt: skip
    rules = Ignored().below("", PATTERNS)
    left_out = {name for name in FILES if is_left_out(name, rules)}
    assert left_out == set(filter(None, checked.stdout.split("\0")))
    assert {"a.log", "logs/a", "sub/x/own.tmp"} <= left_out
    assert "own.tmp" not in left_out


def is_left_out(name: str, rules: Ignored) -> bool:
    """Walk the folders from the top."""
    parts = name.split("/")
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        if depth == 2 and parts[0] == "sub":
            rules = rules.below("sub", OF_SUB)
        if rules.leaves_out(path, is_folder=depth < len(parts)):
            return True
    return False


def test_pattern_with_many_stars_is_matched_in_linear_time() -> None:
    rules = Ignored().below("", "*a" * 30 + "\n" + "**/" * 30 + "x\n")
    assert not rules.leaves_out("a" * 250 + "b", is_folder=False)
    assert not rules.leaves_out("a/" * 100 + "b", is_folder=False)
    assert rules.leaves_out("a" * 250, is_folder=False)
