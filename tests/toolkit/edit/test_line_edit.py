"""Editing launch files: the old line is kept as a comment, and everything else is unchanged."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from verl_doctor.toolkit.edit.line_edit import LineEdit, Syntax, edited
from verl_doctor.toolkit.sources.python.edit import CannotEdit

MARK = "# verl-doctor: ENV101"


def edit(text: str, *edits: LineEdit, syntax: Syntax = "shell script") -> str:
    return edited(text.encode(), "file", syntax, edits, MARK).decode()


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("export X=1\nY=2\n", 1, f"# export X=1  {MARK}\nY=2\n"),
        ("X='a b'\nb\n", 1, f"# X='a b'  {MARK}\nb\n"),
        ("a\n  X=1 # why\nb\n", 2, f"a\n  # X=1 # why  {MARK}\nb\n"),
        ("a\nX=1", 2, f"a\n# X=1  {MARK}\n:  {MARK}"),
        ("X=1\necho $?\n", 1, f"# X=1  {MARK}\n:  {MARK}\necho $?\n"),
        ("a\r\nexport X=1\r\nb\r\n", 2, f"a\r\n# export X=1  {MARK}\r\nb\r\n"),
        ("if a; then\n  X=1\nfi\n", 2, f"if a; then\n  # X=1  {MARK}\n  :  {MARK}\nfi\n"),
        ("f() {\nX=1\n}\n", 2, f"f() {{\n# X=1  {MARK}\n:  {MARK}\n}}\n"),
        ("case a in\nb)\n X=1\n ;;\nesac\n", 3, f"case a in\nb)\n # X=1  {MARK}\n :  {MARK}\n ;;\nesac\n"),
    ],
)
def test_script_line_is_commented_out(before: str, line: int, after: str) -> None:
    assert edit(before, LineEdit(line, "X")) == after


def test_value_written_as_a_python_constant_is_matched() -> None:
    before = 'export X="True"\necho a\n'
    assert (
        edit(before, LineEdit(1, "True", "false"))
        == f'# export X="True"  {MARK}\nexport X="false"  {MARK}\necho a\n'
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("X=1 python a.py\n", 1),
        ("X=1 \\\npython a.py\n", 1),
        ("a \\\n  X=1\n", 2),
        ("export X=1 Y=2\n", 1),
        ("export X=1; b\n", 1),
        ("a && export X=1\n", 1),
        ("a &&\nexport X=1\nb\n", 2),
        ("a |\nexport X=1\nb\n", 2),
        ("export X=$(date)\n", 1),
        ("export X='a\nb'\n", 1),
        ("Y='\nX=1\n'\n", 2),
        ("cat <<END\nX=1\nEND\n", 2),
        ("cat <<END\nif a; then\nX=1\nfi\nEND\n", 3),
        ("export Y=$X\n", 1),
        ("echo X\n", 1),
        ("export Y=1\n", 1),
        ("X=$X\n", 1),
        ("X=1\n", 2),
    ],
)
def test_line_with_other_effects_is_refused(text: str, line: int) -> None:
    with pytest.raises(CannotEdit, match=rf"file:{line}: "):
        edit(text, LineEdit(line, "X"))


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("export X=1\n", 1, f"# export X=1  {MARK}\nexport Z=1  {MARK}\n"),
        ("a \\\n  X=1 \\\n  b\nc\n", 2, f"# X=1 \\  {MARK}\na \\\n  Z=1 \\\n  b\nc\n"),
        ("f() {\n  a \\\n    X=1\n}\n", 3, f"f() {{\n  # X=1  {MARK}\n  a \\\n    Z=1\n}}\n"),
        ("A=(\n  X=1\n  b\n)\n", 2, f"A=(\n  # X=1  {MARK}\n  Z=1  {MARK}\n  b\n)\n"),
    ],
)
def test_script_word_is_replaced(before: str, line: int, after: str) -> None:
    assert edit(before, LineEdit(line, "X", "Z")) == after


def test_dotted_key_is_replaced() -> None:
    text = "python -m verl.trainer.main_ppo \\\n  actor.old=1 \\\n  b.actor.old=2\n"
    after = edit(text, LineEdit(2, "actor.old", "actor.new"))
    assert after == f"# actor.old=1 \\  {MARK}\n" + text.replace("  actor.old", "  actor.new")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cat <<END\nX=1\nEND\n", 2),
        ('a "b\nc" X=1\n', 2),
        ("a '\n' \\\n X=1\n", 3),
        ("X=X\n", 1),
        ("Y=1\n", 1),
        ('a "b\n" \\\n X=1\n', 3),
    ],
)
def test_edit_inside_a_string_is_refused(text: str, line: int) -> None:
    with pytest.raises(CannotEdit):
        edit(text, LineEdit(line, "X", "Z"))


def test_two_lines_of_a_file() -> None:
    assert edit("X=1\na\nY=2\n", LineEdit(3, "Y", "Z"), LineEdit(1, "X")) == (
        f"# X=1  {MARK}\na\n# Y=2  {MARK}\nZ=2  {MARK}\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "if a; then\n  X=1\nfi\nb\n",
        "a \\\n  X=1 \\\n  b\n",
        "while a; do\nX=1\ndone\n",
        "A=(\n X=1\n)\n",
        "(\nX=1\n)\n",
    ],
)
@pytest.mark.skipif(not shutil.which("bash"), reason="bash is the oracle")
def test_edited_script_is_valid_bash(text: str) -> None:
    line = next(number for number, said in enumerate(text.splitlines(), 1) if "X=1" in said)
    for new in (None, "Z"):
        try:
            after = edit(text, LineEdit(line, "X", new))
        except CannotEdit:
            continue
        subprocess.run(["bash", "-n"], input=after, text=True, check=True, capture_output=True)


YAML = 'working_dir: .\nenv_vars:\n  X: "1"\n  Y: 2\n'


def test_runtime_env_entry_is_edited() -> None:
    assert edit(YAML, LineEdit(3, "X"), syntax="runtime_env") == YAML.replace('X: "1"', f'# X: "1"  {MARK}')
    renamed = f'# X: "1"  {MARK}\n  Z: "1"  {MARK}'
    assert edit(YAML, LineEdit(3, "X", "Z"), syntax="runtime_env") == YAML.replace('X: "1"', renamed)


@pytest.mark.parametrize(
    "text",
    [
        "env_vars:\n  X: 1\n",
        "env_vars: {X: 1, Y: 2}\n",
        "env_vars:\n  X: |\n    a\n  Y: 1\n",
        "other:\n  X: 1\n",
    ],
)
def test_ambiguous_runtime_env_is_refused(text: str) -> None:
    line = next(number for number, said in enumerate(text.splitlines(), 1) if "X" in said)
    with pytest.raises(CannotEdit):
        edit(text, LineEdit(line, "X"), syntax="runtime_env")


def test_dockerfile() -> None:
    text = "FROM a\nENV X=1\nENV A=1 \\\n    B=2\n"
    after = edit(text, LineEdit(2, "X"), LineEdit(4, "B", "C"), syntax="Dockerfile")
    assert after == f"FROM a\n# ENV X=1  {MARK}\n# B=2  {MARK}\nENV A=1 \\\n    C=2\n"


@pytest.mark.parametrize("text", ["ENV X=1 Y=2\n", "ENV X=1 \\\n  Y=2\n", "RUN X=1 a\n"])
def test_ambiguous_dockerfile_is_refused(text: str) -> None:
    with pytest.raises(CannotEdit):
        edit(text, LineEdit(1, "X"), syntax="Dockerfile")


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(CannotEdit, match="not valid UTF-8"):
        edited(b"X=\xff\n", "file", "shell script", [LineEdit(1, "X")], MARK)
