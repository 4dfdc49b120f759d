"""Random scripts, edited and run by bash: they behave as before, except for the edit."""

from __future__ import annotations

import random
import re
import shutil
import subprocess

import pytest

from verl_doctor.toolkit.edit.line_edit import LineEdit, edited
from verl_doctor.toolkit.sources.python.edit import CannotEdit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("bash"), reason="bash is the oracle"),
]

# `@` is where another piece goes, `\n` an end of line, ` | ` stands between two pieces.
PIECES = r"""
echo a | export XX=1 | XX=2 | XX='q w' | export XX="$HOME" | XX=1 echo b | XX=1 \\n  echo c | echo d \\n  XX=1 \\n  e
export XX=1 YY=2 | if true; then\n@\nfi | if false; then\n@\nelse\n@\nfi | for i in 1 2; do\n@\ndone | f() {\n@\n}\nf
( \n@\n) | cat <<E\n@\nE | echo "\n@\n" | case a in\na)\n@\n;;\nesac | true &&\n@ | echo z |\n@ | echo ${XX:-no}
A=(\n  XX=1\n  b\n)\necho ${A[0]} | # comment XX=1 | echo 'it' # XX=1 | while false; do\n@\ndone | { \n@\n} | XX+=1
export XX=$(echo 1) | YY=3; XX=4 | ! true\n@ | declare XX=1 | [ -n "$XX" ] && echo set | echo $?
"""
CHOICES = [piece.replace("\\n", "\n") for row in PIECES.strip().splitlines() for piece in row.split(" | ")]


def script(chance: random.Random, depth: int = 0) -> str:
    piece = chance.choice(CHOICES) if depth < 4 else "XX=1"
    while "@" in piece:
        piece = piece.replace("@", script(chance, depth + 1), 1)
    return piece


def run(text: str) -> tuple[int, str]:
    environ = {"HOME": "/h", "PATH": "/bin:/usr/bin"}
    done = subprocess.run(
        ["bash"], input=text, text=True, capture_output=True, check=False, timeout=120, env=environ
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("seed", range(25))
def test_edited_script_behaves_as_before(seed: int) -> None:
    chance = random.Random(seed)
    text = "\n".join(script(chance) for _ in range(4)) + "\n"
    if subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).returncode:
        return
    lines = text.splitlines()
    for number in [number for number, line in enumerate(lines, 1) if "XX" in line][:4]:
        for new in (None, "ZZ"):
            try:
                after = edited(
                    text.encode(), "run.sh", "shell script", [LineEdit(number, "XX", new)], "# mark"
                )
            except CannotEdit:
                continue
            plain = ":" if new is None else re.sub(r"\bXX\b", new, lines[number - 1])
            wanted = "\n".join([*lines[: number - 1], plain, *lines[number:]]) + "\n"
            assert run(after.decode()) == run(wanted), after.decode()
