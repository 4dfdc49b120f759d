"""Scripts put together at random, read and run by bash: what the reader of scripts calls certain is what bash does."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.trying import SEED, cases

from verl_doctor.toolkit.collectors.launch.job_program import Program
from verl_doctor.toolkit.collectors.launch.reader import LaunchReader

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="bash is the oracle")

# `@` is where other pieces go, `%` a number, `\n` an end of line, ` | ` between two blanks stands between two pieces.
PIECES = r"""
export X=% ¦ X=% ¦ Y=% ¦ export Y=$X ¦ X=$Y ¦ X+=% ¦ X="$X-$Y" ¦ unset X ¦ unset E ¦ E=% ¦ export E=%$X ¦ export X ¦ X="$E"
(\n@\n) ¦ {\n@\n} ¦ {\n@\n} &\nwait ¦ true | {\n@\n} ¦ {\n@\n} | cat ¦ Y=$(\n@\necho %\n) ¦ cat <(\n@\n) ¦ coproc {\n@\n}\nwait
(export X=%) ¦ export X=% &\nwait ¦ true | export X=% ¦ (unset E) ¦ (set -a) ¦ (readonly X=%) ¦ (set -- g.h=%) ¦ (f() {\nX=%\n})
(cd sub) ¦ cd sub ¦ cd .. ¦ cd / ¦ X=$PWD ¦ cd sub && X=$PWD ¦ (cd sub && X=%) ¦ (cd missing) || X=% ¦ (cd /; X=%) ¦ (shopt -s lastpipe)
if true; then\n@\nfi ¦ if false; then\n@\nelse\n@\nfi ¦ if [ -e sub ]; then\n@\nfi ¦ if [ -e none ]; then\n@\nelse\n@\nfi
if [ "$X" = 3 ]; then\n@\nfi ¦ [[ -n $Y ]] && X=% ¦ [ -z "$X" ] || Y=% ¦ case "$X" in\n3)\n@\n;;\n*)\n@\n;;\nesac ¦ grep -q b two && X=%
for i in 1 2; do\n@\ndone ¦ for X in 1 2; do\n@\ndone ¦ for i in 1; do\n@\ndone ¦ for i in; do\n@\ndone ¦ for X in "$@"; do\n@\ndone
while read l; do\n@\ndone < two ¦ cat two | while read X; do\n@\ndone ¦ while read X; do\n@\ndone < two ¦ until true; do\n@\ndone
k=0\nwhile [ $k -lt 2 ]; do\nk=$((k+1))\n@\ndone ¦ for i in 1 2; do\n@\nbreak\n@\ndone ¦ for i in 1 2; do\n[ $i = 1 ] && continue\n@\ndone
for i in 1 2; do\n[ $i = 2 ] && break\n@\ndone ¦ while [ ${#w} -lt 2 ]; do\nw=x$w\n@\nbreak\ndone ¦ break ¦ continue ¦ for i in 1 2; do\nX=$Y\nY=%\ndone
f() {\n@\n} ¦ f() (\n@\n) ¦ f() {\n@\nreturn\n@\n} ¦ f() {\n[ -e none ] && return 1\n@\n} ¦ f() {\n[ -e sub ] && return\n@\n} ¦ return
f() {\nlocal X=%\n@\n} ¦ f() {\nlocal X\n@\nY=$X\n} ¦ f() {\nexport X=$1\n} ¦ f() {\nset -- "$@" %\nX=$#\n} ¦ f() {\nif [ -e sub ]; then\nlocal X=%\nfi\nX=%\n}
f() {\ndeclare X=%\ndeclare -g Y=%\n} ¦ f() {\nlocal X=%\ndeclare -g X=%\n} ¦ f() {\nlocal -x Y=%\n@\n} ¦ f() {\nlocal -n r=X\nr=%\n} ¦ f() {\nfalse\n}
f ¦ f % ¦ X=% f ¦ f & wait ¦ f | cat ¦ true | f ¦ f && X=% ¦ f || X=% ¦ if f; then\n@\nfi ¦ (f) ¦ unset -f f ¦ Y=$(f) ¦ local X=% ¦ export -f f
true | read X ¦ echo % | read X ¦ shopt -s lastpipe ¦ shopt -u lastpipe ¦ false | true && X=% ¦ false | true || X=% ¦ (exit 1) || X=%
set -e ¦ set +e ¦ set -u ¦ set -o pipefail ¦ set +o pipefail ¦ set -eo pipefail ¦ set -a ¦ set +a ¦ false ¦ false || X=% ¦ false && X=% ¦ ! false && X=%
(set -e\nfalse\nX=%) || X=% ¦ { false && true\n} ¦ ! true ¦ (false) ¦ false & ¦ x=$(true) ¦ false | true ¦ true && false ¦ ((i++)) ¦ i=0
set -- e.f=% ¦ set -- "$@" e.f=% ¦ set -- ¦ shift ¦ X=$# ¦ X=${1:-%} ¦ X="$*" ¦ set -e e.f=% ¦ if [ -e none ]; then\nset -- e.f=%\nfi
readonly X ¦ readonly Y=% ¦ export -n X ¦ export -n E=% ¦ declare -i X=% ¦ declare -i X ¦ declare -i n=%\nn+=4\nX=$n ¦ declare -x X=% ¦ declare +x X
declare +i X ¦ declare -r Z=%\nZ=%\nX=$Z ¦ declare -n r=X ¦ r=% ¦ Y=$r ¦ unset -n r ¦ unset r ¦ export r=% ¦ declare -u X=a%b ¦ declare -l X=A%B
declare -a A=(% %) ¦ A+=(%) ¦ X=${A[0]} ¦ X="${A[*]}" ¦ X=${#A[@]} ¦ declare -A m=([a]=%)\nX=${m[a]} ¦ A[1]=% ¦ A=() ¦ X="${A[@]:1}" ¦ X=${A[-1]}
shopt -s expand_aliases ¦ alias f=true ¦ (alias f=true) ¦ unalias -a ¦ eval 'X=%' ¦ eval "export Y=$X" ¦ source ./included ¦ X=% source ./included
read X < two ¦ read -r X Y < two ¦ printf -v X % ¦ let X+=% ¦ ((X=Y+%)) ¦ X=$((X+1)) ¦ : ${X:=%} ¦ : "${Y=%}" ¦ X=${Y:-%} ¦ X=${Y:+%}
trap 'X=%' EXIT ¦ trap - EXIT ¦ bash -c 'export X=%' ¦ env X=% true ¦ X=% true ¦ X=% export Y=a"$X" ¦ IFS=, read X Y < two ¦ IFS=- ¦ exec 3>&1
mapfile A < two ¦ export X=$(echo %) ¦ X=$(echo %) ¦ X=$(basename a/%) ¦ time X=% ¦ X=1% Y=2$X ¦ read X <<< % ¦ set -- $X ¦ X="${@:2}" ¦ X=$1 ¦ X=${X%1} ¦ r=Y\nX=${!r} ¦ unset -v X ¦ export A
for ((j=0; j<2; j++)); do\n@\ndone ¦ case a in a)\nX=%\n;&\nb)\n@\n;;\nesac ¦ if ! false; then\n@\nfi ¦ while read X; do\n@\ndone < two | cat
f() {\n[ "$1" = 1 ] || return\nX=%\n} ¦ f() {\n[ -e none ] || return 0\n@\n} ¦ f() {\nfor i in 1 2; do\n@\nreturn\ndone\n} ¦ if (f); then\n@\nfi
f() {\nlocal -a A=(%)\nA+=(%)\nX=${#A[@]}\n} ¦ f() {\nset -e\nfalse\nX=%\n} ¦ f() {\ncd sub\n} ¦ f() {\nunset X\n} ¦ f() {\nlocal X\nunset X\nX=%\n}
f() {\nlocal E=%\n@\n} ¦ f() {\nlocal E\nE=%\n@\n} ¦ f() {\nshift\nX=$1\n} ¦ f() {\nreadonly X=%\n} ¦ f() {\nlocal -r X=%\n} ¦ f() {\nexit\n} ¦ f || true
(return) ¦ (break) ¦ true && X=% || Y=% ¦ false || { X=%\n} ¦ true || { X=%\n} ¦ true && (X=%) ¦ [ -e sub ] && export X=% ¦ [ -e none ] && unset X
exit 0 ¦ (exit 0) ¦ command export X=% ¦ builtin unset X
"""
CHOICES = [piece for row in PIECES.strip().splitlines() for piece in row.split(" ¦ ")]
JOB = 'python3 -m verl.trainer.main_ppo a.b="$X" c.d="$Y" "$@"'
ENDS = [
    *[JOB] * 6,
    f"({JOB})",
    f"{JOB} &\nwait",
    f"X=% {JOB}",
    f"env X=% {JOB}",
    f"env -u E {JOB}",
    f'g() {{\n{JOB}\n}}\ng "$@"',
    f"bash -c '{JOB}' bash \"$@\"",
    'bash job.sh "$@"',
    f"{JOB} | cat",
]
NAMES = ("X", "Y", "E")
FILES = {"two": "a,1\nb,2\n", "included": "export X=8\n[ -e none ] && return\nY=9\n", "job.sh": JOB + "\n"}

PROGRAMS = ("bash", "cat", "grep", "basename", "env")


def script(chance: random.Random) -> str:
    """A script of a few pieces, and the job at its end."""
    count = 0

    def pieces(depth: int, in_function: bool) -> str:
        chosen = []
        for _ in range(chance.randint(3, 6) if depth == 0 else 1):
            piece = chance.choice(CHOICES)
            while ("@" in re.sub(r'"\$@"|\[@\]', "", piece) and depth > 2) or (
                in_function and re.search(r"(?:^|[ (])f\b", piece) and "f()" not in piece
            ):
                piece = chance.choice(CHOICES)
            inside = in_function or "f()" in piece
            chosen.append(re.sub(r"(?<=\\n)@(?=\\n)", lambda _: pieces(depth + 1, inside), piece))  # noqa: B023
        return "\\n".join(chosen)

    def number(_: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return str(count)

    return re.sub("%", number, f"{pieces(0, False)}\\n{chance.choice(ENDS)}\\n".replace("\\n", "\n"))


class Comparison:
    """Runs and reads scripts in a folder of its own. `counts` are of what the reader decided and left undecided."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.counts = Counter[str]()
        programs = self.folder / "bin"
        programs.mkdir()
        for name in PROGRAMS:
            (programs / name).symlink_to(shutil.which(name) or name)
        (programs / "f").symlink_to(shutil.which("true") or "true")
        fake = programs / "python3"
        values = " ".join(f'"${{{name}-unset}}"' for name in NAMES)
        fake.write_text(f"#!/bin/bash\nprintf '%s\\0' {values} \"$@\" > {self.folder}/received\n")
        fake.chmod(0o755)
        self.environ = {"PATH": str(programs), "HOME": str(self.folder), "E": "e"}
        (self.folder / "work/sub").mkdir(parents=True)
        for name, text in FILES.items():
            (self.folder / "work" / name).write_text(text)

    def by_bash(self) -> list[str] | None:
        """The variables and words that the job gets; None where it does not start, or after an error of arithmetic."""
        received = self.folder / "received"
        received.unlink(missing_ok=True)
        done = subprocess.run(
            ["bash", "run.sh", "x.y=1", "z"],
            cwd=self.folder / "work",
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        return (
            received.read_text().split("\0")[:-1]
            if received.exists() and b"syntax error" not in done.stderr
            else None
        )

    def differences(self, text: str) -> list[str]:
        """What the reader calls certain and bash does not do."""
        path = self.folder / "work/run.sh"
        path.write_text(text)
        reader = LaunchReader(_text, self.environ, str(path.parent))
        reader.is_there, reader.is_empty = os.path.exists, lambda _: True
        reader.script(text, str(path), ["x.y=1", "z"])
        real, program = self.by_bash(), reader.training
        if program is None or any(stop.whole for stop in reader.stops):
            sure = not reader.unread
            self.counts["no job" if sure else "undecided job"] += 1
            return ["bash starts the job"] if real is not None and sure else []
        if program.conditional or real is None:
            self.counts["undecided job" if program.conditional else "job that does not start"] += 1
            return []
        self.counts["job"] += 1
        found = []
        for name, value in zip(NAMES, real, strict=False):
            known = self.variable(program, name, sure=not reader.unread)
            self.counts["variables known" if known is not None else "variables unknown"] += 1
            if known not in (None, value):
                found.append(f"{name} is {value!r}, not {known!r}")
        texts = [None if word.conditional else word.text for word in program.words]
        words = real[len(NAMES) + 2 :]
        for text_, word in zip(texts[:2], words, strict=False):
            self.counts["words known" if text_ is not None else "words unknown"] += 1
            if text_ not in (None, word):
                found.append(f"{word!r} is read as {text_!r}")
        rest = texts[2:]
        certain = rest[: rest.index(None)] if None in rest else rest
        self.counts["arguments unknown" if None in rest else "arguments known"] += 1
        if certain != words[2 : 2 + len(certain)] or (None not in rest and len(texts) != len(words)):
            found.append(f"{words[2:]} are read as {rest}")
        return found

    def variable(self, program: Program, name: str, *, sure: bool) -> str | None:
        """The value that the job's environment has for certain, or "unset". Not `sure`: a part of the script was not read."""
        value = self.environ.get(name, "unset") if sure else None
        for entry in program.changes:
            if entry.name == name:
                new = "unset" if entry.removed else entry.value
                value = None if entry.conditional and new != value else new
        return value


def _text(path: str) -> str | None:
    return Path(path).read_text() if os.path.isfile(path) else None


def compared(folder: Path, seeds: Sequence[int]) -> list[str]:
    """Each difference with its script; the counts are printed."""
    comparison, found = Comparison(folder), []
    for seed in seeds:
        text = script(random.Random(seed))
        found += [f"seed {seed}: {words}\n{text}" for words in comparison.differences(text)]
    print(dict(sorted(comparison.counts.items())))
    return found


@pytest.mark.parametrize("part", [range(25), pytest.param(range(25, 200), marks=pytest.mark.slow)])
def test_certain_values_equal_those_of_bash(tmp_path: Path, part: range) -> None:
    first = 1000 * SEED
    found = compared(tmp_path, range(first + cases(part.start), first + cases(part.stop)))
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:20])
