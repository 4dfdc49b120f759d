"""Reading launch scripts without running them. Where bash is available, it is the oracle."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from support.launch.scripts import ENVIRON, given, read, words_of

from verl_doctor.toolkit.collectors.launch.job_variables import from_file
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.launch.reader import LaunchReader
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.shell import walk
from verl_doctor.toolkit.target import Target

# Scripts of which everything is known. Each ends in one call of python3.
KNOWN = {
    "plain": "python3 -m verl.trainer.main_ppo a.b=1 c.d='x y'",
    "declarations are expanded before the first": "A=0\nf() { local A=1 B=$A; python3 -m verl.trainer.main_ppo a=$A b=$B; }\nf",
    "exports are expanded before the first": "A=0\nexport A=1 B=$A\npython3 -m verl.trainer.main_ppo a=$A b=$B",
    "output to a file is expanded once": "i=0\necho $((i++)) >/dev/null\npython3 -m verl.trainer.main_ppo i=$i",
    "a pipe is expanded in its own shell": "i=0\necho $((i++)) | cat\npython3 -m verl.trainer.main_ppo i=$i",
    "backquotes within double quotes": 'python3 -m verl.trainer.main_ppo "a=`echo \\"q r\\"`"',
    "continued lines": "python3 -m verl.trainer.main_ppo \\\n  a=1 \\\n  b=2",
    "a backslash at the end of the script": "python3 -m verl.trainer.main_ppo a=1 \\",
    "a backslash in the last word": "python3 -m verl.trainer.main_ppo a=1 b=2\\",
    "a comment ends the command": "python3 -m verl.trainer.main_ppo a=1 \\\n  # b=2 \\\n",
    "variables": 'n=8\np=$HOME/data\npython3 -m verl.trainer.main_ppo a=$n "b=${p}/x" c=\'$n\' d="$n"e',
    "defaults": "X=\npython3 -m verl.trainer.main_ppo a=${A:-1} b=${OUTSIDE:-2} c=${X:-3} d=${X-4} e=${OUTSIDE:+5} f=${C:=6} g=$C",
    "arithmetic": "a=$((1024 * 4))\nb=3\npython3 -m verl.trainer.main_ppo x=$((a / b % 100 + -2)) y=$(( (1<<4) | 3 )) z=$((2**10))",
    "arrays": 'A=(a=1 "b=x y")\nA+=(c=3)\npython3 -m verl.trainer.main_ppo "${A[@]}" ${A[0]} n=${#A[@]} "${A[@]:1:1}" "s=${A[*]}"',
    "empty arrays": 'A=()\npython3 -m verl.trainer.main_ppo x "${A[@]}" y',
    "array lines with comments": 'A=(\n  a=1  # first\n  # b=2\n  c=3\n)\npython3 -m verl.trainer.main_ppo "${A[@]}"',
    "splitting": 'O="a=1  b=2 "\npython3 -m verl.trainer.main_ppo $O "$O" x$O"y"',
    "quotes in words": "python3 -m verl.trainer.main_ppo a=['console','wandb'] b=\\\"x\\\" 'c={\"k\": 1}' d=\"it's\" e=$'t\\tx'",
    "braces": "python3 -m verl.trainer.main_ppo a={b,c} {1..3} x{y}z '+k={a: 1, b: 2}' {p,q{r,s}}t",
    "braces behind a variable": 'A=x\nAb=1\nAc=2\nA3=4\npython3 -m verl.trainer.main_ppo $A{b,c} ${A}{b,c} $A{/b,.c} "$A"{b,c} $A{3..3} -$A{,c}',
    "lists": "python3 -m verl.trainer.main_ppo \"files=['/a/b','/c/d']\" 'x=[1,2]'",
    "the script's arguments": 'python3 -m verl.trainer.main_ppo "$@" n=$#',
    "shifted arguments": 'N=$1\nshift\npython3 -m verl.trainer.main_ppo n=$N "$@" ${9:-none}',
    "trimming": "M=/m/Qwen2-7B.tar.gz\npython3 -m verl.trainer.main_ppo a=${M##*/} b=${M%.*} c=${M%%.*} d=${M#/m/} e=${M//e/E} f=${M/Q/q} g=${M:3:4}",
    "case": "M=aB\npython3 -m verl.trainer.main_ppo ${M^^} ${M,,} ${M^} ${#M}",
    "pipes and redirections": "python3 -m verl.trainer.main_ppo a=1 2>&1 >/dev/null | cat",
    "in the background": "nohup python3 -m verl.trainer.main_ppo a=1 > log.txt 2>&1 &\nwait",
    "a function": 'run() { local n=$1; shift; python3 -m verl.trainer.main_ppo n=$n "$@"; }\nrun 4 a=1',
    "a subshell": "n=1\n(n=2)\npython3 -m verl.trainer.main_ppo n=$n",
    "a here-document": "cat > /dev/null <<'EOF'\npython3 -m verl.trainer.main_ppo no=1 `\nEOF\npython3 -m verl.trainer.main_ppo a=1",
    "a here-document with tabs": "cat > /dev/null <<-X\n\tit's\n\tX\npython3 -m verl.trainer.main_ppo a=1",
    "a here-string": "cat <<< 'x' >/dev/null\npython3 -m verl.trainer.main_ppo a=1",
    "bash -c": "export N=3\nM=4\nbash -c 'python3 -m verl.trainer.main_ppo n=$N m=${M:-none} $0 $1' zero one",
    "env": "env -u B A=1 python3 -m verl.trainer.main_ppo a=1",
    "exec": "exec python3 -u -m verl.trainer.main_ppo a=1",
    "a loop with one word": "for n in 4; do\n  python3 -m verl.trainer.main_ppo n=$n\ndone",
    "set --": 'set -- x y\npython3 -m verl.trainer.main_ppo "$@"',
    "unset": "OUTSIDE=1\nunset OUTSIDE\npython3 -m verl.trainer.main_ppo a=${OUTSIDE:-gone}",
    "appended text": "a=1\na+=2\npython3 -m verl.trainer.main_ppo a=$a",
    "a tilde": "python3 -m verl.trainer.main_ppo ~/x a=~/x a.b=~/x '~/x'",
    "paths of the script": 'D=$(cd "$(dirname "$0")" && pwd)\nB=`basename /x/y.z .z`\npython3 -m verl.trainer.main_ppo d=$D b=$B',
    "paths of the script, with care": 'D=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )\nR="$(dirname "$(realpath "$0")")"\n'
    'L=$(dirname -- "$(readlink -f -- "$0")")\npython3 -m verl.trainer.main_ppo d=$D r=$R l=$L b=$(basename -- x.sh)',
    "agreeing branches": 'if [ -n "$OUTSIDE" ]; then n=1; else n=1; fi\npython3 -m verl.trainer.main_ppo n=$n',
    "decided conditions": "A=2\nif [ $A -gt 3 ]; then n=1; elif [[ $A == [0-9] || $OUTSIDE == o* ]]; then n=2; else n=3; fi\n"
    "if (( A > 1 )); then m=1; fi\n[ $A = 2 ] && k=1 || k=2\npython3 -m verl.trainer.main_ppo n=$n m=$m k=$k",
    "decided cases": "case $OUTSIDE in\n x|y) n=1;;\n o*) n=2;;\n *) n=3;;\nesac\npython3 -m verl.trainer.main_ppo n=$n",
    "a program in an array": 'L=(python3 -u)\nif [ "${NO_SUCH:-1}" != 0 ]; then L=(env A=1 python3); fi\n'
    '"${L[@]}" -m verl.trainer.main_ppo a=1',
    "exit in a branch": 'n=1\nif [ "$(uname)" = Nowhere ]; then n=2; exit 1; fi\npython3 -m verl.trainer.main_ppo n=$n',
    "return in a function": "f() { n=1; return; n=2; }\nf\npython3 -m verl.trainer.main_ppo n=$n",
    "nested defaults": 'python3 -m verl.trainer.main_ppo a="${A:-${B:-"x y"}}" b=${A:-${OUTSIDE}/z}',
    "CRLF is not ours": "python3 -m verl.trainer.main_ppo a=1",
    "let": "n=1\nlet n=4 'm = n * 2' n++\npython3 -m verl.trainer.main_ppo n=$n m=$m",
    "arithmetic that assigns": "n=1\n((n++))\n(( m = n << 2, k = -n ))\n: $((n += 5))\nj=$((n--))\npython3 -m verl.trainer.main_ppo n=$n m=$m k=$k j=$j i=$((++j))",
    "arithmetic that exports": "export N=1\n((N += 2))\nbash -c 'python3 -m verl.trainer.main_ppo n=$N'",
    "local variables": "n=1\nf() { local n=2 m; m=3; g; }\ng() { k=$n; }\nf\npython3 -m verl.trainer.main_ppo n=$n k=$k m=${m:-none}",
    "declared in a function": "n=1\nexport E=1\nf() { declare n=2; typeset m=3; local E=$1; declare -g o=5; }\nf 4\npython3 -m verl.trainer.main_ppo n=$n m=${m:-none} o=$o e=$E",
    "a local variable of its own name": "n=1\nf() { local n=$n$1; p=$n; }\nf 2\npython3 -m verl.trainer.main_ppo n=$n p=$p",
    "attributes": "declare -i n=2+3\ndeclare -u u\nu=ab\nn=n*2\ndeclare -l l=AB\nreadonly r=1\nr=2 2>/dev/null || true\npython3 -m verl.trainer.main_ppo n=$n u=$u l=$l r=$r",
    "a variable for a function": "f() { python3 -m verl.trainer.main_ppo n=$N; }\nN=3 f",
    "separators": "IFS=,\nA=(1 2 3)\nX='a b'\npython3 -m verl.trainer.main_ppo \"l=[${A[*]}]\" x=$X",
    "no blank in IFS": "IFS=$'\\n\\t'\nX='a b'\npython3 -m verl.trainer.main_ppo $X",
    "arms that fall through": "case x in x) n=1;& y) n=2;; z) n=3;; esac\npython3 -m verl.trainer.main_ppo n=$n",
    "negated": "n=1\nif ! [ 1 = 2 ]; then n=2; fi\n! [[ 1 == 2 ]] && m=3\npython3 -m verl.trainer.main_ppo n=$n m=$m",
    "without regard to case": "shopt -s nocasematch\ncase FOO in foo) n=1;; *) n=2;; esac\n[[ FOO == f* ]] && m=1 || m=2\npython3 -m verl.trainer.main_ppo n=$n m=$m",
    "true and false": "n=1\nfalse && n=2\nm=1\ntrue || m=2\nif false; then k=1; else k=2; fi\npython3 -m verl.trainer.main_ppo n=$n m=$m k=$k",
    "what a function returns": "is_multi() { [ 1 -gt 2 ]; }\nno() { return 1; }\nn=1\nif is_multi; then n=2; fi\nm=1\nno && m=2\npython3 -m verl.trainer.main_ppo n=$n m=$m",
    "in the background alone": "n=1\n{ n=3; } &\nf() { n=2; }\nf &\nmkdir -p d\ncd d &\n{ sleep 0; exit 0; } &\nwait\npython3 -m verl.trainer.main_ppo n=$n",
    "the last of a pipe": "shopt -s lastpipe\nn=1\ntrue | n=3\npython3 -m verl.trainer.main_ppo n=$n",
    "ranges": "python3 -m verl.trainer.main_ppo x={1..9..3} y={a..c} z={01..03} w={5..1..2}",
    "escapes": "python3 -m verl.trainer.main_ppo $'a=x\\x41\\101\\0b'c",
    "names of paths": "python3 -m verl.trainer.main_ppo a=$(basename .py .py) b=$(basename /) c=$(basename /x/y.py .py)",
    "slashes replaced": 'X=a/b/c\nY=/\npython3 -m verl.trainer.main_ppo a=${X//\\//_} b="${X/"$Y"/-}" c=${X//b/x/y} "d=${X//\\//_}"',
    "tildes in a path": "X=a:~/b:~root:c\npython3 -m verl.trainer.main_ppo x=$X y=~root/z",
    "arguments that a sourced file sets": "echo 'set -- w' > /dev/null\neval 'set -- w v'\npython3 -m verl.trainer.main_ppo a=$1 \"$@\"",
    "exit in a function": "f() { python3 -m verl.trainer.main_ppo a=1; exit 0; }\nf\npython3 -m verl.trainer.main_ppo a=2",
    "exec ends the script": "exec python3 -m verl.trainer.main_ppo a=1\npython3 -m verl.trainer.main_ppo a=2",
    "substitutions of processes": "diff <(echo a) <(echo a)\npython3 -m verl.trainer.main_ppo a=1",
    "time in the short form": "time -p python3 -m verl.trainer.main_ppo a=1",
    "quotes in a default": "A=(a=1 'b=2 3')\npython3 -m verl.trainer.main_ppo ${A[@]+\"${A[@]}\"} \"${A[@]+\"${A[@]}\"}\" ${X:-\"c=4  5\"} ${X:-d e}",
    "variables for a sourced text": "N=1\nN=3 eval 'm=$N'\npython3 -m verl.trainer.main_ppo n=$N m=$m",
    "a forgotten function": "f() { n=2; }\nn=1\nunset -f f\nf\npython3 -m verl.trainer.main_ppo n=$n",
    "quoted patterns": 'n=x\ncase abc in "a*") n=1;; a*) n=2;; esac\nif [[ abc == "a*" ]]; then m=1; fi\npython3 -m verl.trainer.main_ppo n=$n m=${m:-2}',
    "no files of this name": "shopt -s nullglob\nshopt -u nullglob\nL='[a,b]'\npython3 -m verl.trainer.main_ppo files=[a,b] l=$L",
    "a here-document for bash": "export N=3\nM=4\nbash -s x 'y z' <<EOF\npython3 -m verl.trainer.main_ppo n=\\$N m=$M h='$HOME' b=\\\\ q=\"1\" \"\\$2\"\nEOF",
    "a literal here-document for bash": "export N=3\nbash <<-'EOF'\n\tM=5\n\tpython3 -m verl.trainer.main_ppo n=$N m=$M\n\tEOF",
    "a here-string for bash": 'N=3\nbash <<< "python3 -m verl.trainer.main_ppo n=$N"',
    "a script in a pipe": "N=3\ncat <<EOF | bash -s 7\npython3 -m verl.trainer.main_ppo n=$N m=\\$1\nEOF",
    "an echo in a pipe": 'N=3\necho "python3 -m verl.trainer.main_ppo n=$N" | sh',
    "a script that is written": "N=3\ncat > go.sh <<EOF\nM=\\${M:-2}\npython3 -m verl.trainer.main_ppo n=$N m=\\$M\nEOF\nchmod +x go.sh\n./go.sh",
    "a script that is written twice": "echo 'python3 -m verl.trainer.main_ppo n=1' > go.sh\necho 'python3 -m verl.trainer.main_ppo n=2' > go.sh\nbash go.sh",
    "env that splits": "N=3\nenv -S 'A=1 python3 -m verl.trainer.main_ppo' n=$N",
    "arguments from a pipe": "echo a=1 'b=2' | xargs python3 -m verl.trainer.main_ppo c=3",
    "a text for another program": "export N=3\nflock lock -c 'python3 -m verl.trainer.main_ppo n=$N'",
    "long options": "timeout --signal=KILL --kill-after 5 1.5h nice --adjustment 1 python3 -m verl.trainer.main_ppo a=1",
    "a substitution changes nothing": "n=1\nx=$(n=2; echo ${m:=3})\npython3 -m verl.trainer.main_ppo n=$n m=${m:-none}",
}  # fmt: skip


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize("name", KNOWN)
def test_words_equal_those_that_bash_passes(name: str, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "argv"
    fake = programs / "python3"
    fake.write_text(f'#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done > {log}\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    found = read(tmp_path, KNOWN[name], "first=1", "two words")
    environ = {**ENVIRON, "PATH": f"{programs}:{ENVIRON['PATH']}"}
    argv = ["bash", str(tmp_path / "run.sh"), "first=1", "two words"]
    subprocess.run(argv, env=environ, cwd=tmp_path, check=True, timeout=120)
    passed = log.read_text().split("\0")[:-1]
    assert words_of(found) == passed[passed.index("-m") + 2 :]
    assert not found.unread


# Scripts that are hard to follow without running them, with their files: every word must equal bash's.
CUNNING: dict[str, tuple[str, dict[str, str]]] = {
    "files": ("{} a=1 *.yaml f=$(echo *.yaml)", {"x.yaml": "", "y.yaml": ""}),
    "the folder of a sourced file": (
        ". ./common.sh\n{} a=$HERE/x b=$OWN",
        {
            "common.sh": 'HERE=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)\nOWN=no\n[[ "${{BASH_SOURCE[0]}}" == "$0" ]] && OWN=yes\ntrue\n'
        },
    ),
    "files in an array": ("F=(*.yaml)\n{} n=${{#F[@]}} f=${{F[1]}} ${{F[@]:1}}", {"x.yaml": "", "y.yaml": ""}),
    "a file as a setting": ("L=[78]\n{} a=[78] b=$L", {"a=7": "", "b=8": ""}),
    "files of an unknown folder": ("cd $(cat f)\n{} *.yaml a=[b]", {"f": ".", "x.yaml": ""}),
    "files of which there are none": ("shopt -s nullglob\n{} files=[a,b] b=2", {}),
    "lines of a file": ("F=($(cat f) z)\nset -- $(cat f) 8\n{} ${{F[1]}} n=${{#F[@]}} a=$2", {"f": "x y"}),
    "an argument that vanishes": ("f() {{ {} a=$2 z=1; }}\nf $GONE 8", {}),
    "an argument of a script that vanishes": ("bash i.sh $GONE 8", {"i.sh": "{} a=$2\n"}),
    "a script that is copied over": ("cp new.sh job.sh\nbash job.sh", {"job.sh": "{} a=1\n", "new.sh": "{} a=2\n"}),
    "a script that is edited": ("sed -i s/1/2/ v.sh\n. ./v.sh\n{} a=$A", {"v.sh": "A=1\n"}),
    "a script that is copied elsewhere": ("cp v.sh out\n. ./v.sh\n{} a=$A", {"v.sh": "A=1\n"}),
    "an alias": ("shopt -s expand_aliases\nalias python3='python3 -m verl.trainer.main_ppo x=1 #'\n{} a=2", {}),
    "variables that see each other": ("A=0\nA=1 B=$A bash -c '{} b=$B'", {}),
    "variables of a sourced script": ("N=1\nN=3 source ./i.sh", {"i.sh": "{} a=$N\n"}),
    "the path of a substitution": ("{} a=<(echo b) c=1", {}),
    "a sourced substitution": ("A=1\nsource <(echo A=5)\n{} a=$A", {}),
    "output that goes elsewhere": ("A=$(echo 5 >&2)\n{} a=x$A", {}),
    "a folder that is not there": ("A=$(cd gone && pwd)\n{} a=x$A", {}),
    "a file of variables": ("A=1\nexport $(cat v)\n{} a=$A", {"v": "A=5"}),
    "names from a file": ('A=1\nwhile read -r l; do eval "$l"; done < v\n{} a=$A', {"v": "A=5\n"}),
    "variables that env removes": ("export A=1\nenv -i PATH=$PATH bash i.sh", {"i.sh": "{} a=$A h=$HOME b=1"}),
    "a variable that env removes": ("export A=1\nenv -uA B=2 bash i.sh", {"i.sh": "{} a=$A b=$B"}),
    "an environment that exec empties": ("export A=1\nexec -c /usr/bin/env PATH=$PATH bash i.sh", {"i.sh": "{} a=$A"}),
    "exported under a condition": ("if [ -e i.sh ]; then export A=1; else export A=2; fi\nbash i.sh", {"i.sh": "{} a=$A"}),
    "text that is appended": ("echo '{} a=1' >> go.sh\nbash go.sh", {"go.sh": "A=1\n"}),
    "text that is written under a condition": ("[ -e i.sh ] && echo '{} a=1' > i.sh\nbash i.sh", {"i.sh": "{} a=2"}),
    "text that another program changes": ("echo '{} a=1' > go.sh\nsed -i s/1/2/ go.sh\nbash go.sh", {}),
    "one word of the input for each run": ("echo 3 | xargs -n 1 bash i.sh", {"i.sh": "{} a=$1"}),
    "a place for the input": ("echo 3 | xargs -I@ {} a=@ b=1", {}),
    "input for two programs": ("bash <<'EOF'\ncat > /dev/null\nA=1\nEOF\n{} a=${{A:-2}}", {}),
    "upper case of some letters": ("X=abc\n{} a=${{X^^[a]}} b=$[2+3]", {}),
}  # fmt: skip


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize("name", CUNNING)
def test_tricky_scripts_give_the_words_that_bash_passes(name: str, tmp_path: Path) -> None:
    start = "python3 -m verl.trainer.main_ppo"
    script, files = CUNNING[name]
    for file, text in files.items():
        (tmp_path / file).write_text(text.format(start))
    found = read(tmp_path, script.format(start))
    log = tmp_path / "bin" / "argv"
    log.parent.mkdir()
    fake = log.with_name("python3")
    fake.write_text(f'#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done > {log}\n')
    fake.chmod(0o755)
    environ = {**ENVIRON, "PATH": f"{log.parent}:{ENVIRON['PATH']}"}
    subprocess.run(["bash", "run.sh"], env=environ, cwd=tmp_path, check=True, timeout=120)
    if found.command:  # an unknown word may be any number of words
        pattern = "".join(
            "(?:[^\0]*\0)*" if word is None else f"{re.escape(word)}\0" for word in words_of(found)
        )
        passed = log.read_text().partition("verl.trainer.main_ppo\0")[2]
        assert re.fullmatch(pattern, passed), (words_of(found), passed)
    else:
        assert found.unread


def test_missing_script_is_absent() -> None:
    assert isinstance(launch.collect(Target(Path("/env/bin/python"), "--python"), Machine()), Absent)


def test_binary_file_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"\x7fELF\0\0")
    found = launch.collect(Target(Path("/env/bin/python"), "--python", files=(path,)), Machine())
    assert isinstance(found, Unknown)
    assert "not a readable text file" in found.reason


def test_only_exported_variables_reach_the_job(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "export A=1 B\nC=2\nD=3 python3 -m verl.trainer.main_ppo a=1\nexport LATE=1\n",
    )
    assert given(found) == {"A": "1", "D": "3"}
    assert found.settings[0] == Setting("A", "1", str(tmp_path / "run.sh"), 1)


def test_setting_under_a_condition_is_conditional(tmp_path: Path) -> None:
    found = read(tmp_path, 'if [ "$X" = 1 ]; then\n  export A=1\nfi\npython3 -m verl.trainer.main_ppo a=$A\n')
    assert [(setting.name, setting.conditional) for setting in found.settings] == [("A", True)]
    assert words_of(found) == [None]


def test_conditional_array_elements_are_conditional(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        'A=(a=1 b=2)\nif [ -n "$X" ]; then A+=(c=3); fi\npython3 -m verl.trainer.main_ppo "${A[@]}" d=4\n',
    )
    assert found.command
    assert [(word.text, word.conditional) for word in found.command.words] == [
        ("a=1", False), ("b=2", False), ("c=3", True), ("d=4", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('E="a=1"\nif [ -n "$Q" ]; then E="$E c=3"; fi', [("a=1", False), ("c=3", True)]),
        ('[ -d /x ] && E="c=3 d=4"', [("c=3", True), ("d=4", True)]),
        ("if [ -d /x ]; then E=c=3; else E=c=4; fi", [("c=3", True), ("c=4", True)]),
        ("case $Q in x) E=c=3 ;; *) E= ;; esac", [("c=3", True)]),
        ('E=""\n[ -d /x ] && E+=" c=3"\n[ -d /y ] && E+=" d=4"', [("c=3", True), ("d=4", True)]),
        ("if [ -d /x ]; then E=c=$NOBODY; fi", [(None, False)]),
    ],
)  # fmt: skip
def test_conditional_words_of_a_string_are_conditional(
    script: str, words: list[tuple[str | None, bool]], tmp_path: Path
) -> None:
    found = read(tmp_path, f"{script}\npython3 -m verl.trainer.main_ppo $E b=2\n")
    assert found.command
    assert [(word.text, word.conditional) for word in found.command.words] == [*words, ("b=2", False)]


@pytest.mark.slow
def test_a_command_in_twenty_loops_is_found(tmp_path: Path) -> None:
    loops = "".join(f"for v{place} in a b; do\n" for place in range(20))
    start = "python3 -m verl.trainer.main_ppo a.b=$v0 c=$v19 d=1\n"
    found = read(tmp_path, f"{loops}{start}{'done; ' * 20}\n")
    assert words_of(found) == [None, None, "d=1"]
    assert not found.unread


def test_value_assigned_under_a_condition_is_unknown(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        'N=8\nif [ -d /x ]; then N=4; fi\npython3 -m verl.trainer.main_ppo a=$N "b=$N" ${N}x c=$((N * 2)) "$N"\n',
    )
    assert words_of(found) == [None] * 5


def test_variable_not_set_in_the_script_is_unknown(tmp_path: Path) -> None:
    assert words_of(read(tmp_path, "python3 -m verl.trainer.main_ppo a=$NOBODY b=$(whoami)")) == [None, None]


def test_sourced_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("export A=1\nn=7\n")
    found = read(
        tmp_path, "source $(dirname $0)/env.sh\n. ./missing.sh\npython3 -m verl.trainer.main_ppo n=$n"
    )
    assert given(found) == {"A": "1"}
    assert words_of(found) == ["n=7"]
    assert found.unread == (f"{tmp_path / 'run.sh'}:2: ./missing.sh is sourced, but does not exist",)


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("torchrun --standalone --nnodes=1 --nproc_per_node 8 -m verl.trainer.sft_trainer a=1", "verl.trainer.sft_trainer"),
        ("accelerate launch --num_processes 8 verl/trainer/main_ppo.py a=1", "verl/trainer/main_ppo.py"),
        ("python -m torch.distributed.run --nproc-per-node=8 -m verl.trainer.sft_trainer a=1", "verl.trainer.sft_trainer"),
        ("srun -N 1 --gres gpu:8 --overlap bash -lc 'cd /x && python -m verl.trainer.main_ppo a=1'", "verl.trainer.main_ppo"),
        ("CUDA_VISIBLE_DEVICES=0 uv run --with x python3.11 -m recipe.dapo.main_dapo a=1", "recipe.dapo.main_dapo"),
        ("uv run --extra vllm -m recipe.dapo.main_dapo a=1", "recipe.dapo.main_dapo"),
        ("sudo -E timeout 3h python3 scripts/train_agent.py a=1", "scripts/train_agent.py"),
        ("docker run --rm --gpus all -v /a:/b --env A=1 image:1 python3 -m verl.trainer.main_ppo a=1", "verl.trainer.main_ppo"),
        ("nsys profile -t cuda -o prof --force-overwrite true python3 -m verl.trainer.main_ppo a=1", "verl.trainer.main_ppo"),
        ("pixi run -e gpu python -m verl.trainer.main_ppo a=1", "verl.trainer.main_ppo"),
        ("docker exec verl bash -lc 'cd /x && python -m verl.trainer.main_ppo a=1'", "verl.trainer.main_ppo"),
        ("srun apptainer exec --nv image.sif torchrun -m verl.trainer.sft_trainer a=1", "verl.trainer.sft_trainer"),
    ],
)  # fmt: skip
def test_program_is_found_inside_its_wrappers(line: str, module: str, tmp_path: Path) -> None:
    found = read(tmp_path, line)
    assert found.command
    assert found.command.module == module
    assert words_of(found) == ["a=1"]


@pytest.mark.parametrize(
    ("line", "words", "variables"),
    [
        ("env -i A=1 {}", ["n=3"], {"A": "1", "NCCL_DEBUG": "gone"}),
        ("sudo A=1 {}", ["n=3"], {"A": "1", "N": None, "NCCL_DEBUG": None}),
        ("sudo -E {}", ["n=3"], {"N": "3"}),
        ("sudo --preserve-env=N {}", ["n=3"], {"N": "3", "NCCL_DEBUG": None}),
        ("su -c '{}' me", ["n=3"], {"N": "3"}),
        ("su - me -c '{}'", [None], {"N": None, "NCCL_DEBUG": None}),
        ("srun --export=NONE {}", ["n=3"], {"NCCL_DEBUG": "gone"}),
        ("srun --export=ALL,A=1 {}", ["n=3"], {"N": "3", "A": "1"}),
        ("sbatch --export NONE --wrap '{}'", [None], {"N": None, "NCCL_DEBUG": None}),
        ("sbatch --wrap='{}'", ["n=3"], {"N": "3"}),
        ("sbatch -J x <<'EOF'\n#!/bin/bash\n{}\nEOF", ["n=3"], {"N": "3"}),
        ("tmux new-session -d -s x '{}'", [None], {"N": None, "NCCL_DEBUG": None}),
        ("screen -dmS x bash -c '{}'", ["n=3"], {"N": "3"}),
        ("script -qefc '{}' /dev/null", ["n=3"], {"N": "3"}),
        ("ssh -p 22 host 'cd /x && {}'", [None], {"N": None, "NCCL_DEBUG": None}),
        ("ssh host bash -s <<'EOF'\n{}\nEOF", [None], {"N": None, "NCCL_DEBUG": None}),
        ("tmux send-keys -t x 'N=5' Enter '{}' C-m", ["n=5"], {"N": "5", "NCCL_DEBUG": None}),
        ("tmux send-keys -t x 'N=' 5\ntmux send-keys -t x Enter\ntmux send -t x:0.1 '{}' C-m", ["n=5"], {"N": "5"}),
        ("docker run --rm -e N=7 -e A=1 image bash -c '{}'", ["n=7"], {"N": "7", "A": "1", "NCCL_DEBUG": None}),
        ("docker run --env=N=7 -it image bash -c '{}'", ["n=7"], {"N": "7"}),
        ("docker run -e N image bash -c '{}'", ["n=3"], {"N": "3"}),
        ("docker run -e N=7 --entrypoint bash -v /a:/b --rm image -c '{}'", ["n=7"], {"N": "7"}),
        ("docker run --entrypoint=bash image -c '{}'", [None], {"N": None}),
        ("docker compose run --rm trainer {}", ["n=3"], {"N": None, "NCCL_DEBUG": None}),
        ("parallel {} a={{}} ::: 1 2", ["n=3", None], {"N": "3"}),
    ],
)  # fmt: skip
def test_words_and_variables_passed_on_by_a_wrapper(
    line: str, words: list[str | None], variables: dict[str, str | None], tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"export N=3\n{line.format('python3 -m verl.trainer.main_ppo n=$N')}\n")
    target = Target(Path("/env/bin/python"), "--python", files=(path,))
    found = launch.collect(target, Machine(environ={**ENVIRON, "NCCL_DEBUG": "INFO"}, cwd=tmp_path))
    assert isinstance(found, Launch)
    assert words_of(found) == words
    seen = {setting.name: "gone" if setting.removed else setting.value for setting in found.settings}
    assert {name: value for name, value in seen.items() if name != "PATH" and name in variables} == variables
    assert ("N" in seen) == ("N" in variables)


def test_batch_script_that_inherits_nothing(tmp_path: Path) -> None:
    start = "python3 -m verl.trainer.main_ppo h=$HOME"
    assert words_of(read(tmp_path, f"#!/bin/bash\n#SBATCH --export=NONE\n{start}\n")) == [None]
    assert words_of(read(tmp_path, f"#!/bin/bash\n#SBATCH --export=ALL\n{start}\n")) == ["h=/home/u"]


def test_data_preparation_is_not_training(tmp_path: Path) -> None:
    script = "python3 examples/data_preprocess/gsm8k.py --local_dir=x\npython3 -m verl.trainer.main_ppo a=1\n"
    found = read(tmp_path, script)
    assert found.command
    assert found.command.module == "verl.trainer.main_ppo"
    assert not found.others
    assert read(tmp_path, "python3 prepare.py --local_dir=x\n").command is None


def test_dockerfile(tmp_path: Path) -> None:
    text = 'FROM x\nARG V=1\nENV A=1 \\\n  # why\n  B="x y" C=$V\nENV OLD style value\nRUN export D=1\nRUN <<E\nENV F=1\nE\n'
    found = read(tmp_path, text, name="Dockerfile")
    assert given(found) == {"A": "1", "B": "x y", "C": None, "OLD": "style value"}
    assert found.settings[-1].line == 6


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('CMD ["python3", "-m", "verl.trainer.main_ppo", \\\n  "a=1"]\n', 2),
        ('ENTRYPOINT ["python3"]\nCMD ["-m", "verl.trainer.main_ppo", "a=1"]\n', 3),
        ("CMD exec python3 -m verl.trainer.main_ppo a=1\n", 2),
        ('ENTRYPOINT python3 -m verl.trainer.main_ppo a=1\nCMD ["b=2"]\n', 2),
        ("CMD python3 -m verl.trainer.main_ppo a=1\nFROM first\nENV B=1\n", 2),
        (
            "CMD python3 -m verl.trainer.main_ppo b=2\nFROM there\nCMD python3 -m verl.trainer.main_ppo a=1\n",
            4,
        ),
    ],
)
def test_dockerfile_alone_starts_its_command_in_a_container(tmp_path: Path, text: str, line: int) -> None:
    found = read(tmp_path, f"FROM here AS first\n{text}", name="Dockerfile")
    assert words_of(found) == ["a=1"]
    assert found.command is not None
    assert (found.command.line, found.command.names[0]) == (line, "docker")


def test_dockerfile_next_to_a_script_starts_nothing(tmp_path: Path) -> None:
    image, script = tmp_path / "Dockerfile", tmp_path / "run.sh"
    image.write_text("FROM here\nCMD python3 -m verl.trainer.main_ppo b=2\n", encoding="utf-8")
    script.write_text("python3 -m verl.trainer.main_ppo a=1\n", encoding="utf-8")
    target = Target(Path("/env/bin/python"), "--python", files=(image, script))
    found = launch.collect(target, Machine(environ=ENVIRON, cwd=tmp_path))
    assert isinstance(found, Launch)
    assert words_of(found) == ["a=1"]


def test_command_line(tmp_path: Path) -> None:
    target = Target(
        Path("/env/bin/python"), "--python", words=("A=1", "python3", "-m", "verl.trainer.main_ppo", "a=$x")
    )
    found = launch.collect(target, Machine(environ=ENVIRON, cwd=tmp_path))
    assert isinstance(found, Launch)
    assert words_of(found) == ["a=$x"]
    assert given(found) == {"A": "1"}


@pytest.mark.parametrize(
    "script", ["if true; then", "a='x", "for", "case x in", "${", "$(", "<<", "((", "}", "x=(", "\\"]
)
def test_broken_script_is_reported(script: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"export A=1\n{script}\n")
    assert given(found) == {"A": "1"}
    if script != "\\":
        assert found.unread
        assert ":2: " in found.unread[0] or ":3: " in found.unread[0]


@pytest.mark.slow
@hypothesis.given(st.text(alphabet="ab=1$(){}[]\"'`\\;&|<>#!*?~ \n\t-+:@%/,if then fi do done", max_size=60))
def test_any_text_is_read_without_a_crash(text: str) -> None:
    reader = LaunchReader(lambda _: None, ENVIRON, "/")
    reader.script(text, "/run.sh", ())
    reader.dockerfile(text, "/Dockerfile", starts=True)
    from_file(reader, text, "/env.yaml")


@pytest.mark.slow
def test_deep_and_long_scripts_end(tmp_path: Path) -> None:
    for text in (
        "$(" * 3000,
        "(" * 3000,
        "if " * 3000,
        "{a,b}" * 40,
        "f() { f; f; }; f\n",
        "x=$x$x\n" * 5000,
        "a='\n" * 3000,
    ):
        read(tmp_path, f"{text}\nexport A=1\n")


def test_overrides_after_a_commented_continuation_are_lost(tmp_path: Path) -> None:
    found = read(
        tmp_path, "python3 -m verl.trainer.main_ppo \\\n  a.b=1 \\\n  # c.d=2 \\\n  e.f=3 \\\n  g.h=4\n"
    )
    assert words_of(found) == ["a.b=1"]
    assert [(word.text, word.line) for word in found.lost] == [("e.f=3", 4), ("g.h=4", 5)]


def test_windows_line_endings_are_read_and_reported(tmp_path: Path) -> None:
    found = read(tmp_path, b"python3 -m verl.trainer.main_ppo \\\r\n  a.b=1\r\n")
    assert words_of(found) == ["a.b=1"]
    assert found.carriage_returns == (str(tmp_path / "run.sh"),)


def test_script_that_calls_another_is_followed(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text("python3 -m verl.trainer.main_ppo a=$1 b=${B:-none} c=${C:-none}\n")
    found = read(tmp_path, "export B=2\nC=3\nsbatch -N 2 --gres=gpu:8 inner.sh one\n")
    assert words_of(found) == ["a=one", "b=2", "c=none"]
    assert given(found) == {"B": "2"}


def test_arguments_for_another_script_keep_their_source_line(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text('\n\nset -- a.b=0 "$@"\npython3 -m verl.trainer.main_ppo "$@"\n')
    found = read(tmp_path, "cd .\nbash inner.sh c.d=1 'e.f=2'\n")
    assert found.command
    places = [(word.text, Path(word.path).name, word.line, word.written) for word in found.command.words]
    assert places == [
        ("a.b=0", "inner.sh", 3, "a.b=0"),
        ("c.d=1", "run.sh", 2, "c.d=1"),
        ("e.f=2", "run.sh", 2, "'e.f=2'"),
    ]


def test_words_printed_from_a_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "args.txt").write_text("a.b=1\nc.d=2\n")
    call = "python3 -m verl.trainer.main_ppo $(cat args.txt) e.f=3\n"
    assert words_of(read(tmp_path, call)) == ["a.b=1", "c.d=2", "e.f=3"]
    assert words_of(read(tmp_path, f"echo a.b=2 > args.txt\n{call}")) == [None, "e.f=3"]
    (tmp_path / "args.txt").write_text(
        "a.b=1 trainer.wandb_api_key=0123456789abcdef0123456789abcdef01234567\n"
    )
    assert words_of(read(tmp_path, call)) == [None, "e.f=3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "A=$A$A",
        "A+=$A",
        'A=("${A[@]}" "${A[@]}")',
        'A+=("${A[@]}")',
        "A=${A//x/xxxx}",
        "A=$(echo $A$A)",
        "f() { A=$A$A; }\nf",
    ],
)
def test_string_that_doubles_repeatedly_is_cut_off(line: str, tmp_path: Path) -> None:
    found = read(tmp_path, "A=x\n" + f"{line}\n" * 60 + 'python3 -m verl.trainer.main_ppo a.b="$A" c.d=1\n')
    assert words_of(found)[-1] == "c.d=1"


@pytest.mark.parametrize("call", ["source run.sh", ". ./run.sh", "bash run.sh", "./run.sh"])
def test_script_that_calls_itself_is_followed_once(call: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"{call}\n{call}\npython3 -m verl.trainer.main_ppo a.b=1\n")
    assert words_of(found) == ["a.b=1"]
    assert "itself" in found.unread[0]


def test_called_script_starts_in_the_folder_of_its_call(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "inner.sh").write_text("export B=2\npython3 -m verl.trainer.main_ppo b=$B\n")
    found = read(tmp_path, "bash inner.sh\ncd out\n")
    assert found.command
    assert found.command.folder == str(tmp_path)


def test_old_content_of_a_file_that_the_script_rewrites_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "vars.sh").write_text("A=old\n")
    found = read(tmp_path, "echo A=new > vars.sh\n. ./vars.sh\npython3 -m verl.trainer.main_ppo a=$A\n")
    assert words_of(found) == [None]
    assert "changes it before" in found.unread[0]


def test_array_element_keeps_its_source_line(tmp_path: Path) -> None:
    script = """\
ARGS=(
  a.b=1
  c.d=2
)
if [ -n "$OUTSIDE" ]; then
  ARGS+=(e.f=3)
fi
start() {
  python3 -m verl.trainer.main_ppo "$@"
}
start "${ARGS[@]}" g.h=4
"""
    found = read(tmp_path, script)
    assert found.command
    assert [(word.text, word.line) for word in found.command.words] == [
        ("a.b=1", 2),
        ("c.d=2", 3),
        ("e.f=3", 6),
        ("g.h=4", 11),
    ]


@pytest.mark.parametrize(
    ("lines", "folder"),
    [
        ("", "."),
        ("mkdir -p out/today && cd out/today", "out/today"),
        ("cd out\ncd ..", "."),
        ("(cd out && ls)", "."),
        ('if [ -n "$X" ]; then cd out; fi', ""),
        ("cd $(git rev-parse --show-toplevel)", ""),
        ("pushd out", ""),
        ("cd gone", "."),
        ("cd out\ncd - > /dev/null", "."),
        ("cd -P out", "out"),
        ("command cd out", "out"),
        ('cd() { builtin cd "$@"; }\ncd out', "out"),
        ("cd out &", "."),
        ("env -C out \\", "out"),
        ("env --chdir=out A=1 \\", "out"),
    ],
)  # fmt: skip
def test_start_folder_of_the_job_follows_cd(tmp_path: Path, lines: str, folder: str) -> None:
    (tmp_path / "out").mkdir()
    found = read(tmp_path, f"{lines}\npython3 -m verl.trainer.main_ppo a=1\n")
    assert found.command
    assert found.command.folder == (str((tmp_path / folder).resolve()) if folder else "")


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("export PATH=$PWD/bin", "python3"),
        ("export PATH=$PWD/bin:$PWD/tools", ""),
        ("export PATH=$PWD/bin:$PATH", ""),
        ('[ -n "$X" ] && export PATH=$PWD/bin', ""),
        ("export PATH=$(tool)", ""),
    ],
)  # fmt: skip
def test_path_set_in_the_script_is_searched(tmp_path: Path, line: str, lacks: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "python3").touch(mode=0o755)
    found = read(tmp_path, f"{line}\npython3 -m verl.trainer.main_ppo a=1\n")
    assert [error.message for error in found.stopped] == ([f"{lacks}: command not found"] if lacks else [])


@pytest.mark.parametrize("call", ["{}", "bash -c '{}'"])
def test_variable_that_a_module_may_set_is_not_empty(call: str, tmp_path: Path) -> None:
    start = call.format("python3 -m verl.trainer.main_ppo data.train_files=$EBROOTDATA/train.parquet")
    assert read(tmp_path, start).hollow
    assert not read(tmp_path, f"module load data\n{start}").hollow


def test_number_of_the_launcher_that_is_empty(tmp_path: Path) -> None:
    found = read(tmp_path, "torchrun --nproc_per_node=$N_HERE -m verl.trainer.sft_trainer a.b=1 c.d=2")
    assert [word.text for word in found.hollow] == ["--nproc_per_node="]


def test_shell_variables_do_not_reach_a_container(tmp_path: Path) -> None:
    script = (
        "export N=3\ndocker exec -e M=5 c bash -c 'python3 -m verl.trainer.main_ppo n=$N m=${M:-1} h=$HOME'\n"
    )
    assert words_of(read(tmp_path, script)) == [None, "m=5", None]


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("--gpus-per-node=4", 4),
        ("--gpus-per-node=h100:8", 8),
        ("-J x --gres=gpu:8", 8),
        ("--gres gpu:a100:2,nvme:1", 2),
        ("--gres=nvme:1,gpu:3", 3),
        ("--gpus=16", None),
        ("--gres=nvme:4", None),
    ],
)
def test_gpus_requested_in_a_batch_script_are_read(line: str, gpus: int | None, tmp_path: Path) -> None:
    found = read(
        tmp_path, f"#!/bin/bash\n#SBATCH {line}\npython3 -m verl.trainer.main_ppo a=1\n#SBATCH --gres=gpu:9\n"
    )
    assert found.gpus_per_node == gpus


@pytest.mark.parametrize(
    ("command", "inside"),
    [
        ("docker run image python3 -m verl.trainer.main_ppo a=1", True),
        ("docker exec box bash -c 'cd /w && python3 -m verl.trainer.main_ppo a=1'", True),
        ("srun --container-image=verl.sqsh python3 -m verl.trainer.main_ppo a=1", True),
        ("srun python3 -m verl.trainer.main_ppo a=1", False),
        ("python3 -m verl.trainer.main_ppo a=1", False),
    ],
)
def test_job_in_a_container(command: str, inside: bool, tmp_path: Path) -> None:
    assert read(tmp_path, command).in_container is inside


@pytest.mark.parametrize(
    ("before", "installs"),
    [
        ("pip install -q math-verify", True),
        ("/env/bin/python -m pip install -e .", True),
        ("uv sync --all-extras", True),
        ("conda activate verl", False),
        ("pip list", False),
        ("echo pip install", False),
    ],
)
def test_packages_installed_by_the_script_are_detected(before: str, installs: bool, tmp_path: Path) -> None:
    start = "python3 -m verl.trainer.main_ppo a=1\n"
    assert read(tmp_path, f"{before}\n{start}").installs is installs
    assert not read(tmp_path, f"{start}{before}\n").installs


def test_zsh_expands_arrays_and_does_not_split_strings(tmp_path: Path) -> None:
    script = (
        'A=(a=1 "b=2 3")\nT="x y"\nE=""\npython3 -m verl.trainer.main_ppo $A $T $E "$A" n=${#A} ${A[1]}\n'
    )
    zsh = read(tmp_path, f"#!/usr/bin/env zsh\n{script}")
    assert words_of(zsh) == ["a=1", "b=2 3", "x y", "a=1 b=2 3", "n=2", "a=1"]
    bash = read(tmp_path, f"#!/bin/bash\n{script}")
    assert words_of(bash) == ["a=1", "x", "y", "a=1", "n=3", "b=2", "3"]
    (tmp_path / "inner.sh").write_text(script)
    assert words_of(read(tmp_path, "zsh inner.sh")) == words_of(zsh)


def test_sourced_file_from_windows(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_bytes(b"LR=1e-5\r\n# all\r\nN=2\r\n")
    found = read(tmp_path, "source ./env.sh\npython3 -m verl.trainer.main_ppo lr=$LR n=$N")
    assert words_of(found) == ["lr=1e-5\r", "n=2\r"]
    (tmp_path / "env.sh").write_bytes(b"# copied\r\nLR=1e-5\nN=2\n")
    found = read(tmp_path, "source ./env.sh\npython3 -m verl.trainer.main_ppo lr=$LR n=$N")
    assert words_of(found) == ["lr=1e-5", "n=2"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("for SEED in 1 2; do\n  python3 -m verl.trainer.main_ppo seed=$SEED a=1\ndone", ["seed=1", "a=1"]),
        ("for A in x y; do for B in 1 2; do\n  python3 -m verl.trainer.main_ppo a=$A b=$B\ndone; done", ["a=x", "b=1"]),
        ("for T in none all; do\n  if [ $T = none ]; then continue; fi\n  python3 -m verl.trainer.main_ppo t=$T a=1\ndone", [None, "a=1"]),
        ("for T in none all; do\n  case $T in all) python3 -m verl.trainer.main_ppo t=$T a=1;; esac\ndone", [None, "a=1"]),
        ("for N in 1 $UNKNOWN_HERE; do\n  python3 -m verl.trainer.main_ppo n=$N a=1\ndone", [None, "a=1"]),
        ("for N in 1 2; do :; done\npython3 -m verl.trainer.main_ppo n=$N a=1", [None, "a=1"]),
        ('for M in x y; do\n  ray stop || true\n  [ -n "$DEBUG" ] && nvidia-smi\n  python3 -m verl.trainer.main_ppo m=$M a=1\ndone', ["m=x", "a=1"]),
        ("for M in x y; do\n  [ -d $M ] || continue\n  python3 -m verl.trainer.main_ppo m=$M a=1\ndone", [None, "a=1"]),
        ("for M in x y; do\n  if [ ! -d $M ]; then echo no; continue; fi\n  python3 -m verl.trainer.main_ppo m=$M a=1\ndone", [None, "a=1"]),
        ("for M in x y; do\n  if [ -d $M ]; then python3 -m verl.trainer.main_ppo m=$M a=1; fi\ndone", [None, "a=1"]),
        ("for M in x y; do\n  test -e $M && python3 -m verl.trainer.main_ppo m=$M a=1\ndone", [None, "a=1"]),
        ("for M in x y; do\n  ([ -d $M ] || exit 0; python3 -m verl.trainer.main_ppo m=$M a=1)\ndone", [None, "a=1"]),
        ("run() { [ -d $1 ] || return; python3 -m verl.trainer.main_ppo m=$1 a=1; }\nfor M in x y; do run $M; done", [None, "a=1"]),
        ("for N in 64 2; do python3 -m verl.trainer.main_ppo n=$N a=1 && break; done", [None, "a=1"]),
        ("for N in 64 2; do if python3 -m verl.trainer.main_ppo n=$N a=1; then break; fi; done", [None, "a=1"]),
        ("for N in 64 2; do python3 -m verl.trainer.main_ppo n=$N a=1 || echo $N failed; done", [None, "a=1"]),
        ("for A in x y; do for B in 1 2; do\n  mkdir -p out && python3 -m verl.trainer.main_ppo a=$A b=$B\ndone; done", ["a=x", "b=1"]),
    ],
)  # fmt: skip
def test_first_round_of_a_loop(script: str, words: list[str | None], tmp_path: Path) -> None:
    assert words_of(read(tmp_path, script)) == words


@pytest.mark.parametrize(
    ("redirected", "text"), [("> c.yaml <<EOF", ""), ("<<EOF > c.yaml", None), (">> c.yaml <<EOF", None)]
)
def test_file_for_a_here_document_that_bash_cannot_expand(
    redirected: str, text: str | None, tmp_path: Path
) -> None:
    """Bash opens the files in the order in which they are written, and stops at the here-document."""
    script = f"cat {redirected}\na: ${{b.c}}\nEOF\npython3 -m verl.trainer.main_ppo a=1 b=2\n"
    found = read(tmp_path, script)
    assert found.command is not None
    written = dict(found.command.written)
    assert written.get(str(tmp_path / "c.yaml")) == text
    subprocess.run(["bash", "run.sh"], cwd=tmp_path, capture_output=True, check=False)
    real = tmp_path / "c.yaml"
    assert (real.read_text() if real.exists() else None) == ("" if redirected.startswith(">") else None)


def test_shell_function_that_is_exported_is_found(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("set -e\nspack load cuda\npython3 -m verl.trainer.main_ppo a=1 b=2\n")
    target = Target(Path("/env/bin/python"), "--python", files=(path,))
    environ = {**ENVIRON, "BASH_FUNC_spack%%": "() {  echo $1\n}"}
    found = launch.collect(target, Machine(environ=environ, cwd=tmp_path))
    assert isinstance(found, Launch)
    assert not found.stopped


@pytest.mark.parametrize(
    "line",
    [
        "[[ " + "! " * 5000 + "a ]]",
        "[[ " + "( " * 3000 + "a" + " )" * 3000 + " ]]",
        "echo {1..1" + "0" * 5000 + "}",
        "echo " + "{a:" * 1000 + "1" + "}" * 1000,
    ],
    ids=["negated", "in brackets", "long number", "in braces"],
)
def test_extreme_commands_end_and_hide_nothing(line: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"{line}\npython3 -m verl.trainer.main_ppo a=1\n")
    assert words_of(found)[-1] == "a=1"


def test_what_many_conditions_leave_open_is_not_copied_without_end(tmp_path: Path) -> None:
    """Each condition copies all variables: thousands of them would take minutes."""
    lines = [f"test -e /x{number} || export A{number}=y" for number in range(700)]
    assert _is_cut(read(tmp_path, "\n".join([*lines, "python3 -m verl.trainer.main_ppo a=1"])))


def test_limit_that_is_reached_in_a_trial_of_a_loop_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "_MOST_STEPS", 200)
    loop = "for name in $NAMES; do\n" + "true\n" * 150 + "done"
    assert _is_cut(read(tmp_path, f"{loop}\npython3 -m verl.trainer.main_ppo a=1\n"))


def _is_cut(found: Launch) -> bool:
    return any(note.endswith("the rest is not followed") for note in found.unread)


def test_functions_in_functions_that_are_each_nested_deeply_are_not_followed(tmp_path: Path) -> None:
    functions = [
        f"f{number}() {{ {'if true; then ' * 40}f{number + 1}{'; fi' * 40}; }}" for number in range(30)
    ]
    found = read(tmp_path, "\n".join([*functions, "f0", "python3 -m verl.trainer.main_ppo a=1"]))
    assert isinstance(found, (Launch, Unknown))
