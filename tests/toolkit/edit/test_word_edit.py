"""Editing single words of a shell script."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.edit.word_edit import WordEdit, as_word, edited_words, with_key, with_value
from verl_doctor.toolkit.sources.python.edit import CannotEdit

MARK = "# verl-doctor: CFG108"
SCRIPT = """\
#!/bin/bash
if true; then
  train a=1 \\
    'b.c=[1, 2]' \\
    d="x" "$@"
fi
ARGS=(
  e=1
  f=2
)
train "${ARGS[@]}" g=3
"""


def edit(*edits: WordEdit, script: str = SCRIPT) -> str:
    return edited_words(script.encode(), "run.sh", edits, MARK).decode()


@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        (WordEdit(4, "'b.c=[1, 2]'", ("'b.c=[1]'",)), "    'b.c=[1, 2]' \\\n", "    'b.c=[1]' \\\n"),
        (WordEdit(4, "'b.c=[1, 2]'"), " \\\n    'b.c=[1, 2]' \\\n", " \\\n"),
        (WordEdit(5, 'd="x"'), ' \\\n    d="x" "$@"', ' "$@"'),
        (
            WordEdit(5, 'd="x"', ("z=1", "y=2"), follows=True),
            'd="x" "$@"',
            'd="x" \\\n    z=1 \\\n    y=2 "$@"',
        ),
        (WordEdit(3, "a=1", ("z=1",), follows=True), "train a=1 \\", "train a=1 z=1 \\"),
        (WordEdit(8, "e=1", ("e=2",)), "  e=1\n", "  e=2\n"),
        (WordEdit(9, "f=2"), "\n  f=2\n", "\n"),
        (WordEdit(11, "g=3"), " g=3\n", "\n"),
    ],
)
def test_only_one_word_is_edited(change: WordEdit, old: str, new: str) -> None:
    after = edit(change)
    assert "\n".join(row for row in after.split("\n") if MARK not in row) == SCRIPT.replace(old, new, 1)
    assert after.count(MARK) == 1


@pytest.mark.parametrize(
    ("script", "after"),
    [
        ("MINI=8\ntrain a=$MINI\n", "MINI=4\ntrain a=$MINI\n"),
        ("MINI='8'  # rows\ntrain \"a=${MINI}\"\n", "MINI='4'  # rows\ntrain \"a=${MINI}\"\n"),
        ('X=1\n  MINI=8\nA=(\n a="$MINI"\n)\ntrain\n', 'X=1\n  MINI=4\nA=(\n a="$MINI"\n)\ntrain\n'),
    ],
)
def test_value_from_a_variable_used_only_here_is_edited_at_its_assignment(script: str, after: str) -> None:
    line = next(number for number, row in enumerate(script.split("\n"), 1) if "a=" in row)
    written = script.split("\n")[line - 1].strip().removeprefix("train ")
    rows = edit(WordEdit(line, written, ("a=4",)), script=script).split("\n")
    assert "\n".join(row for row in rows if MARK not in row) == after
    at = next(number for number, row in enumerate(rows) if MARK in row)
    assert "MINI=" in rows[at]
    assert "MINI=" in rows[at + 1]


@pytest.mark.parametrize(
    "script",
    [
        "MINI=8\ntrain a=$MINI\ntrain b=$MINI\n",
        "MINI=8\nMINI=16\ntrain a=$MINI\n",
        "export MINI=8\ntrain a=$MINI\n",
        "if x; then\n MINI=8\nfi\ntrain a=$MINI\n",
        "MINI=${1:-8}\ntrain a=$MINI\n",
        "MINI=8 y\ntrain a=$MINI\n",
        "for MINI in 8; do train; done\ntrain a=$MINI\n",
        "MINI=8\ntrain a=$((MINI*2))\n",
        "MINI=8\ntrain a=${MINI}0\n",
        "MINI=8\ntrain a=${MINI:-9}\n",
        "train a=$MINI\nMINI=8\n",
        "MINI+=8\ntrain a=$MINI\n",
        "cat <<EOF\nMINI=8\nEOF\ntrain a=$MINI\n",
    ],
)
def test_value_from_a_shared_variable_is_edited_at_the_word(script: str) -> None:
    line, row = next((number, row) for number, row in enumerate(script.split("\n"), 1) if "a=" in row)
    written = row.removeprefix("train ")
    rows = edit(WordEdit(line, written, ("a=4",)), script=script).split("\n")
    assert "\n".join(row for row in rows if MARK not in row) == script.replace(written, "a=4", 1)


@pytest.mark.parametrize(
    ("script", "change", "after"),
    [
        ("bash <<EOF\ntrain \\\\\n  a=1\nEOF\n", WordEdit(3, "a=1", ("a=3",)), "bash <<EOF\ntrain \\\\\n  a=3\nEOF\n"),
        ("bash -c 'train a=1 b=2'\n", WordEdit(1, "a=1", ("a=3",)), "bash -c 'train a=3 b=2'\n"),
        ('srun bash -c "train \\\n  a=1 \\\n  b=2"\n', WordEdit(1, "b=2", ("b=3",)), 'srun bash -c "train \\\n  a=1 \\\n  b=3"\n'),
        ('if x; then\n  E="a=1 b=2"\nfi\ntrain $E\n', WordEdit(4, "a=1", ("a=3",)), 'if x; then\n  E="a=3 b=2"\nfi\ntrain $E\n'),
        ("E='a=1\n b=2'\ntrain $E\n", WordEdit(2, "b=2", ("c=3",), follows=True), "E='a=1\n b=2 c=3'\ntrain $E\n"),
        ("E='a=1 b=2'\ntrain $E\n", WordEdit(2, "b=2"), "E='a=1 '\ntrain $E\n"),
        ("set -- a=1\ntrain $@\n", WordEdit(2, "a=1", ("a=3",)), "set -- a=3\ntrain $@\n"),
    ],
)  # fmt: skip
def test_plain_word_inside_a_string_is_edited_in_place(script: str, change: WordEdit, after: str) -> None:
    rows = edit(change, script=script).split("\n")
    assert "\n".join(row for row in rows if MARK not in row) == after
    (note,) = (row for row in rows if MARK in row)
    assert note.lstrip().startswith("# ")


def test_old_line_is_kept_as_a_comment_above_its_command() -> None:
    rows = edit(WordEdit(5, 'd="x"', ("d='y'",)), WordEdit(3, "a=1", ("a=2",))).split("\n")
    assert rows[2:6] == [
        f"  # train a=1 \\  {MARK}",
        f'  # d="x" "$@"  {MARK}',
        "  train a=2 \\",
        "    'b.c=[1, 2]' \\",
    ]


@pytest.mark.parametrize(
    ("script", "change", "why"),
    [
        ("train a=1 a=1\n", WordEdit(1, "a=1", ("a=2",)), "does not occur there exactly once"),
        ("train a=2\n", WordEdit(1, "a=1"), "does not occur there exactly once"),
        ("X='a=1'\nY='a=1'\ntrain $X\n", WordEdit(3, "a=1"), "does not occur there exactly once"),
        (
            "X='a=1'\ntrain $X\n",
            WordEdit(2, "a=1", ("a='x y'",)),
            "is part of a text, in which a='x y' would",
        ),
        (
            "bash -c 'train a=1'\n",
            WordEdit(1, "a=1", ("b='[x]'",), follows=True),
            "is part of a text, in which b='.x.' would",
        ),
        ("# a=1\ntrain $X\n", WordEdit(2, "a=1"), "does not occur there exactly once"),
        ("cat <<EOF\na=1 a=1\nEOF\n", WordEdit(2, "a=1"), "does not occur there exactly once"),
        ("train a=1\n", WordEdit(1, "a=1", ("a=$(rm x",)), "not a single shell word"),
        ("train a=1\n", WordEdit(1, "a=1", ("a=1; rm x",)), "not a single shell word"),
        ("train a=1\r\n", WordEdit(1, "a=1"), "Windows line endings"),
        ("# syntax\nFROM x\nCMD train a=1\n", WordEdit(3, "a=1"), "Dockerfile: edit line 3 by hand"),
        ("x='\n' train \\\n 'b\n c' a=1\n", WordEdit(4, "a=1"), "cannot be edited"),
    ],
)
def test_ambiguous_words_are_refused(script: str, change: WordEdit, why: str) -> None:
    with pytest.raises(CannotEdit, match=why):
        edit(change, script=script)


@pytest.mark.parametrize(
    ("written", "value", "after"),
    [
        ("a.b=1", "2", "a.b=2"),
        ("a.b=1", "x y", "a.b='x y'"),
        ("a.b=[1,2]", "[1]", "a.b=[1]"),
        ('a.b="$N"', "4", 'a.b="4"'),
        ("a.b=${N}", "4", "a.b=4"),
        ("'a.b=[1, 2]'", "[1, 3]", "'a.b=[1, 3]'"),
        ('"a.b=x"', "$y", "'a.b=$y'"),
        ('a.b=\'["x","y"]\'', '["x"]', "a.b='[\"x\"]'"),
        ("a.b='x'", "it's", "a.b='it'\"'\"'s'"),
    ],
)
def test_value_keeps_its_quotes(written: str, value: str, after: str) -> None:
    assert with_value(written, "a.b", value) == after


def test_key_is_replaced_inside_its_quotes() -> None:
    assert with_key("'+a.b=[1, 2]'", "+a.b", "a.c") == "'a.c=[1, 2]'"
    assert with_key('a.b="$X"', "a.b", "a.c") == 'a.c="$X"'
    with pytest.raises(CannotEdit):
        with_key("$A.b=1", "a.b", "a.c")


def test_separate_word_is_quoted_only_if_necessary() -> None:
    assert as_word("+a.b=sdpa") == "+a.b=sdpa"
    assert as_word("a=[console]") == "a=[console]"
    assert as_word('a="x y"') == "a='\"x y\"'"
