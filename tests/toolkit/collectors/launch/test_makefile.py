"""Following `make`. Where make is available, it is the oracle."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.launch.makefile import request_of
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

ENVIRON = {"HOME": "/home/u", "PATH": os.environ.get("PATH", ""), "OUTSIDE": "o"}
START = "python3 -m verl.trainer.main_ppo"

# The words of the command, and the makefile; each ends in one call of python3.
KNOWN = {
    "a target": ("make train", f"all:\n\t@echo no\ntrain:\n\t@{START} a=1 b='x y'\n"),
    "the first target": ("make", f".PHONY: t\nt:\n\t-{START} a=1\nclean:\n\trm -rf x\n"),
    "the default goal": ("make", f".DEFAULT_GOAL := t\nclean:\n\ttrue\nt:\n\t{START} a=1\n"),
    "variables": ("make t LR=3", f"LR = 1\nM := $(LR)x\nN ?= 4\nOUTSIDE ?= no\nN += 5\nt:\n\t{START} a=$(LR) b=${{M}} c='$(N)' d=$(OUTSIDE) e=$(GONE)\n"),
    "a variable of one letter": ("make t", f"MODEL = /m\nt:\n\t{START} a=$MODEL b=$$HOME c=$(MODEL)\n"),
    "recursive and simple": ("make t", f"A = 1\nR = $(A)\nS := $(A)\nA = 2\nt:\n\t{START} r=$(R) s=$(S)\n"),
    "a variable of the target": ("make t", f"A = 1\nt: A = 2\nt: B := 3\nt: u\n\t{START} a=$(A) b=$(B)\nu:\n\ttrue\n"),
    "continued lines": ("make t", f"A = 1 \\\n  2\nt:\n\t{START} \\\n\t\ta='$(A)' \\\n\t\tb=2\n"),
    "conditions": ("make t DEBUG=1", f'ifeq ($(DEBUG),1)\nN = 1\nelse\nN = 8\nendif\nifdef GONE\nM = 1\nelse ifneq "$(N)" "8"\nM = 2\nendif\nt:\n\t{START} n=$(N) m=$(M)\n'),
    "exported to the recipe": ("make t Z=9", f"export A = 1\nB = 2\nexport B\nC = 3\nt:\n\t{START} a=$$A b=$$B c=$${{C:-0}} z=$$Z\n"),
    "a shell for each line": ("make t", f"t:\n\tcd / && N=3\n\t{START} n=$${{N:-0}}\n"),
    "one shell for all lines": ("make t", f".ONESHELL:\nt:\n\tN=3\n\t{START} n=$$N\n"),
    "a recipe behind a semicolon": ("make t", f"t: ; {START} a=1\n"),
    "prerequisites": ("make t", f"t: data | out\n\t{START} a=1\ndata out:\n\ttrue\n"),
    "automatic variables": ("make t", f"t: u\n\t{START} a=$@ b=$<\nu:\n\ttrue\n"),
    "what a shell prints, in quotes": ("make t", f"N := $(shell echo x)\nt:\n\t{START} 'a=[$(N)]' b=$(N) \"c=$(N)\"\n"),
    "another folder and file": ("make -C sub -j 4 -f b.mk t", f"t:\n\t{START} a=1\n"),
    "an included file": ("make t", f"include more.mk\n-include gone.mk\nt:\n\t{START} n=$(MORE)\n"),
    "make from make": ("make t", f"t:\n\t$(MAKE) u LR=2\nu:\n\t{START} lr=$(LR)\n"),
    "variables of the shell": ("A=1 make t", f"A ?= 2\nt:\n\t{START} a=$(A)\n"),
    "a comment": ("make t", f"A = 1 # one\nt: # trains\n\t{START} a=$(strip $(A)) # b=2\n"),
}  # fmt: skip


def read(folder: Path, script: str, makefile: str) -> Launch:
    path = folder / "run.sh"
    path.write_text(f"{script}\n")
    (folder / "Makefile").write_text(makefile)
    (folder / "sub").mkdir()
    (folder / "sub" / "b.mk").write_text(makefile)
    (folder / "more.mk").write_text("MORE = 7\n")
    target = Target(Path("/env/bin/python"), "--python", files=(path,))
    found = launch.collect(target, Machine(environ=ENVIRON, cwd=folder))
    assert isinstance(found, Launch)
    return found


@pytest.mark.skipif(shutil.which("make") is None, reason="make is the oracle")
@pytest.mark.parametrize(("script", "makefile"), KNOWN.values(), ids=KNOWN)
def test_the_words_are_those_that_make_passes(script: str, makefile: str, tmp_path: Path) -> None:
    found = read(tmp_path, script, makefile)
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/bash\nprintf "%s\\n" "${@:3}" > "$WORDS"\n')
    python.chmod(0o755)
    words = tmp_path / "words"
    environ = {**ENVIRON, "PATH": f"{python.parent}:{ENVIRON['PATH']}", "WORDS": str(words)}
    subprocess.run(["bash", "run.sh"], cwd=tmp_path, env=environ, check=True, capture_output=True)
    assert not found.unread
    assert found.command
    assert [word.text for word in found.command.words] == words.read_text().splitlines()


def test_a_finding_stands_at_its_line_of_the_makefile(tmp_path: Path) -> None:
    found = read(tmp_path, "make t", f"A = 1\nt:\n\ttrue\n\t{START} \\\n\t\ta=1\n")
    assert found.command
    assert (found.command.path, found.command.line) == (str(tmp_path / "Makefile"), 4)
    assert [word.line for word in found.command.words] == [5]


@pytest.mark.parametrize(
    ("makefile", "reason"),
    [
        (f"define X\ny\nendef\nt:\n\t{START} a=1\n", "`define` is not followed"),
        (f"ifeq ($(shell date),1)\nA=1\nendif\nt:\n\t{START} a=1\n", "a condition depends on"),
        (f"include gone.mk\nt:\n\t{START} a=1\n", "gone.mk is included, but does not exist"),
        (f"train:\n\t{START} a=1\n", "No rule to make target 't'"),
        (f"A = $(A)\nt:\n\t{START} a=$(A)\n", "variables refer to each other"),
        (f"t:\n\t{START} a=$(A\n", "is not closed"),
    ],
)
def test_what_is_not_followed_is_noted(makefile: str, reason: str, tmp_path: Path) -> None:
    found = read(tmp_path, "make t", makefile)
    assert found.command is None
    assert any(reason in note for note in found.unread)


def test_a_function_of_make_gives_an_unknown_word(tmp_path: Path) -> None:
    found = read(tmp_path, "make t", f"t:\n\t{START} 'a=$(notdir /x/y)' b=$(wildcard *.mk) c=1\n")
    assert found.command
    assert [word.text for word in found.command.words] == [None, None, "c=1"]


@pytest.mark.parametrize("words", [["-n", "t"], ["--dry-run"], ["-sn"], ["--version"]])
def test_a_make_that_only_prints_runs_nothing(words: list[str]) -> None:
    request = request_of(words)
    assert request is not None
    assert not request.runs


def test_the_command_may_be_make_itself(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(f"t:\n\t{START} a=$(A)\n")
    target = Target(Path("/env/bin/python"), "--python", words=("make", "t", "A=5"))
    found = launch.collect(target, Machine(environ=ENVIRON, cwd=tmp_path))
    assert isinstance(found, Launch)
    assert found.command
    assert [word.text for word in found.command.words] == ["a=5"]
