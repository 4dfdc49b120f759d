"""The shell file in real shells: any value comes out as it went in, sourced once or twice, under `set -eu`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.repair.envfile import SOURCED, Entry, Reason, sourced
from verl_doctor.toolkit.repair.envfile_shell import read, written

REASON = Reason("CUDA101", "libcuda-link", 'it\'s `here`: "$HOME"; needed until $(reboot) # \\')
SHELLS = [name for name in ("bash", "sh", "dash", "ksh", "zsh") if shutil.which(name)]
HOSTILE = {
    "quotes": "it's \"quoted\" '\"'\"' ''",
    "newlines": "a\n\nb\n# ENV101 x: y\nexport B='1'\n",
    "dollar": "$HOME ${HOME} $(id) `id` \\$x \\",
    "unicode": "\u00e9\u4e2d\U0001f600\u202e",
    "no text": os.fsdecode(b"\xff\xfe"),
    "long": "x" * 30_000,
    "empty": "",
    "options": "-n -e --",
    "glob": "* ? [a-z] ~ {a,b} !! %s %n",
    "equals": "=eth0",
    "carriage return": "a\r\nb\t\x1b[31m",
}


def run(shell: str, script: str, file: Path, environ: dict[str, str]) -> dict[str, str]:
    """The environment of a program that this shell starts after the script."""
    done = subprocess.run(
        [shell, "-c", f"set -eu; {script}; env -0", shell, str(file)],
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pairs = (os.fsdecode(pair).partition("=") for pair in done.stdout.split(b"\0") if pair)
    # Variables set by the shells themselves: zsh sets home and name, and ksh marks its exports.
    noise = {"PWD", "SHLVL", "_", "OLDPWD", "A__z", *({"HOME", "LOGNAME"} if shell == "zsh" else ())}
    return {name: value for name, _, value in pairs if name not in noise}


def file_of(folder: Path, *entries: Entry) -> Path:
    file = folder / "it's an env.sh"
    file.write_bytes(written(entries, str(file)).encode("utf-8", "surrogateescape"))
    return file


ALL = [
    *(Entry(f"V{number}", value, (REASON,)) for number, value in enumerate(HOSTILE.values())),
    Entry("GONE", None, (REASON,), instead_of="a\nb"),
    Entry("NEVER_WAS", None, (REASON, REASON), node_only=True),
    Entry("EMPTY_LIST", "/x y/$z", (REASON,), prepend=True),
    Entry("LIST", "/it's:/b", (REASON,), prepend=True, node_only=True),
    Entry("LIST_IN_PLACE", "/x", (REASON,), prepend=True),
    Entry("LIST_FURTHER_BACK", "/x", (REASON,), prepend=True),
]
BEFORE = {
    "GONE": "a\nb",
    "LIST": "/a*:/c",
    "LIST_IN_PLACE": "/x:/y",
    "LIST_FURTHER_BACK": "/y:/x",
    "V1": "other",
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_sets_the_intended_values(shell: str, times: int, tmp_path: Path) -> None:
    file = file_of(tmp_path, *ALL)
    seen = run(shell, '. "$1"; ' * times + ":", file, BEFORE)
    wanted = sourced(BEFORE, ALL)
    path = seen.pop("PATH")
    assert path == os.environ["PATH"]
    assert seen == {**wanted, SOURCED: str(file)}


def test_nested_shell_can_source_the_file_again(tmp_path: Path) -> None:
    file = file_of(tmp_path, Entry("LIST", "/x", (REASON,), prepend=True))
    seen = run("bash", '. "$1"; exec bash -euc \'. "$1"; exec env -0\' bash "$1"', file, {"LIST": "/a"})
    assert seen["LIST"] == "/x:/a"


def test_written_file_can_be_read() -> None:
    text = written(ALL, "/any\nwhere/it's.sh")
    assert read(text) == ("/any\nwhere/it's.sh", tuple(ALL))
    assert read(written((), "/a")) == ("/a", ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "export A='1'\n",
        written(ALL, "/a") + "export MINE=1\n",
        written(ALL, "/a").replace("unset", "unset -v"),
        written(ALL, "/a")[:-3],
    ],
    ids=["empty", "another file", "a line more", "another statement", "cut off"],
)
def test_files_of_other_programs_are_not_parsed(text: str) -> None:
    assert read(text) is None


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)
lines = texts.map(lambda text: " ".join(text.split()))
reasons = st.builds(Reason, st.just("NET101"), st.just("a-fix"), lines)
several = st.lists(reasons, min_size=1, max_size=2).map(tuple)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).map("V_{}".format)
entries = st.one_of(
    st.builds(
        Entry, names, st.none() | texts, several, node_only=st.booleans(), instead_of=st.none() | texts
    ),
    st.builds(Entry, names, texts.filter(bool), several, prepend=st.just(True)),
)


@pytest.mark.slow
@settings(max_examples=cases(25), deadline=None)
@given(st.lists(entries, max_size=4), texts)
def test_any_entries_survive_a_round_trip(some: list[Entry], path: str) -> None:
    assert read(written(some, path)) == (path, tuple(some))


@pytest.mark.slow
@settings(max_examples=cases(25), deadline=None)
@given(
    st.lists(entries, max_size=6, unique_by=lambda one: one.name), st.dictionaries(names, texts, max_size=3)
)
def test_bash_sets_the_intended_values_for_any_entries(some: list[Entry], before: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = file_of(Path(folder), *some)
        seen = run("bash", '. "$1"; . "$1"', file, before)
    del seen["PATH"]
    assert seen == {**sourced(before, some), SOURCED: str(file)}
