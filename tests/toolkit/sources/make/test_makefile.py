"""Following `make`. Where make is available, it is the oracle."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from verl_doctor.checks.configuration.launch_starts_nothing import launch_starts_nothing
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.make.request import request_of
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.testing import run_check

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
    "a recipe that replaces an included one": ("make", f"include rule.mk\nt: w ; {START} a=1 b=$<\nw u v:\n\ttrue\n"),
    "needs of several rules": ("make t", f"t: u\n\t{START} a=1 b=$<\nu v:\n\ttrue\nt: v\n"),
    "a recipe of two targets, one replaced": ("make u", f"t u:\n\tfalse\nu:\n\t{START} a=$@\n"),
    "rules with two colons": ("make t", f"t::\n\ttrue\nt:: u\n\t{START} a=$@ b=$<\nu:\n\ttrue\n"),
    "an empty recipe replaces one": ("make t u", f"t:\n\tfalse\nt: ;\nu:\n\t{START} a=1\n"),
    "functions that print": ("make t", f"$(info model: x)\n$(warning no: # y)\nt:\n\t{START} a=1$(info $(A))\n"),
    "functions in conditions": (
        "make t X='2 3'",
        (
"ifeq ($(filter 1,$(X)),)\nA = 1\nendif\nifneq (,$(findstring 3,$(X)))\nB = 1\nendif\n"
        f"ifeq '$(words $(X))' \"2\"\nC = 1\nendif\nt:\n\t{START} a=$(A) b=$(B) c=$(C)\n"
        ),
    ),
    "functions": (
        "make t",
        (f"A = a.py, b.c  a.c\nt:\n\t{START} 'a=[$(filter %.c a%,$(A))]' 'b=[$(filter-out %.c,$(A))]' 'c=[$(subst a,x,$(A))]' 'd=[$(if $(A),1, 2 )]'"
        " 'e=[$(if $(B),1, 2,3 )]' 'f=[$(or $(B),${A})]' 'g=[$(and $(A),$(B),c)]' 'h=[$(firstword $(A))$(lastword $(A))$(word 2,$(A))]' 'i=[$(strip  $(A) )]'\n"),
    ),
    "spaces in conditions": (
        "make t",
        ("X = 1 # one\nifeq ( a,a)\nA = 1\nendif\nifeq (a ,a)\nB = 1\nendif\nifeq (a, a)\nC = 1\nendif\nifeq (a,a )\nD = 1\nendif\n"
        f"ifeq ($(X),1)\nE = 1\nendif\nt:\n\t{START} a=$(A) b=$(B) c=$(C) d=$(D) e=$(E) 'x=[$(X)]'\n"),
    ),
    "a pattern rule": ("make train-ab", f"t-%:\n\tfalse\ntrain-%:\n\tfalse\ntrain-a%:\n\t{START} a=$* b=$@ 'c=$<'\n"),
    "a rule for any other target": ("make t u", f"t:\n\t{START} a=$@\n%:\n\t@:\n"),
    "folders of included files, and output by target": ("make -Otarget -Iinclude -sj4 --jobs 2 -k t", f"include v.mk\nt:\n\t{START} n=$(MORE)\n"),
    "a variable that overrides that of the command line": ("make t A=1 B=1", f"override A = 2\nt: B = 2\nt:\n\t{START} a=$(A) b=$(B)\n"),
    "the folder": ("make t", f"HERE := $(notdir x)$(CURDIR)\nDATA := $(CURDIR)/x\nt:\n\t{START} a=$(DATA) b=$(CURDIR)\n"),
    "a variable that is set later": ("make t", f"A += $(B)\nB = 1\nt:\n\t{START} a=$(A)\n"),
    "prefixes in one shell": ("make t", f".ONESHELL:\nSHELL = /bin/bash\nt:\n\t@set -e\n\t@{START} a=1 \\\n\t\t+b=2\n"),
    "only an order": ("make t", f"t: | u\n\t{START} 'a=$<'\nu:\n\ttrue\n"),
    "a target that exists and needs a phony one": ("make sub", f".PHONY: u\nsub: u\n\t{START} a=1\nu:\n\ttrue\n"),
    "a number sign": ("make t", f"A = a\\#b\nB := $(subst #,x,a\\#b)\nt:\n\t{START} 'a=$(A)'\n"),
    "everything is exported": ("make t", f".EXPORT_ALL_VARIABLES:\nA = 1\nt:\n\t{START} a=$$A\n"),
    "an automatic variable outside of recipes": ("make t", f"ifeq ($@,)\nA = 1\nendif\nB := $@\nC = x\nC += $(D)\nD :=\nC +=\nt:\n\t{START} a=$(A) 'b=$(B)' 'c=[$(C)]'\n"),
    "needs that are files of a pattern": ("make t", f"FILES := $(wildcard *.mk)\nt: $(FILES) $(shell echo more.mk) u\n\t{START} a=$@\nu:\n\ttrue\n"),
    "needs with a prefix": ("make", f"all: $(addprefix t-,$(addsuffix b,a))\nt-%:\n\t{START} a=$*\n"),
    "a circle of needs": ("make t", f"t: u t\n\t{START} 'a=$<'\nu: t\n\ttrue\n"),
    "a comment": ("make t", f"A = 1 # one\nt: # trains\n\t{START} a=$(strip $(A)) # b=2\n"),
}  # fmt: skip


def read(folder: Path, script: str, makefile: str) -> Launch:
    path = folder / "run.sh"
    path.write_text(f"{script}\n")
    (folder / "Makefile").write_text(makefile)
    (folder / "sub").mkdir()
    (folder / "sub" / "b.mk").write_text(makefile)
    (folder / "more.mk").write_text("MORE = 7\n")
    (folder / "rule.mk").write_text(f"t: v\n\t{START} trainer.bogus=1\n")
    (folder / "include").mkdir()
    (folder / "include" / "v.mk").write_text("MORE = 8\n")
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
        (f"$(eval N := 1)\nt:\n\t{START} a=$(N)\n", "`$(eval ...)` is not followed"),
        (f"set = $(eval $(1) := 2)\n$(call set,N)\nt:\n\t{START} a=$(N)\n", "`$(eval ...)` is not followed"),
        (f"$(foreach n,M N,$(eval $(n) := 1))\nt:\n\t{START} a=$(N)\n", "`$(eval ...)` is not followed"),
        (f"$(error no)\nt:\n\t{START} a=1\n", "`$(error ...)` is not followed"),
        (f"t: private A = 1\nt: u\nu:\n\t{START} a=$(A)\n", "`t: private A = 1` is not followed"),
        (f"private A = 1\nt:\n\t{START} a=$(A)\n", "`private` is not followed"),
        (f"A = 1\nundefine A\nt:\n\t{START} a=$(A)\n", "`undefine` is not followed"),
        (f".RECIPEPREFIX = >\nt:\n> {START} a=1\n", "`.RECIPEPREFIX` is not followed"),
        (
            f"include *.mk\nt:\n\t{START} a=1\n",
            "`include *.mk` is not followed: it depends on which files there are",
        ),
        (f"t: $(patsubst %,t-%,a)\nt-a:\n\t{START} a=1\n", "it depends on a function or a command"),
        (f"t: %: u\n\t{START} a=1\n", "the static pattern rule of t is not followed"),
        (f"%: u\n\t{START} a=1\n", "the pattern rule `%` is not followed"),
        (f"N = X\n$(N)_A = 1\nt:\n\t{START} a=$(X_A)\n", "`$(N)_A = 1` is not followed"),
        (f"$(foreach n,a b,x$(n)):\n\ttrue\nt:\n\t{START} a=1\n", "it depends on a function or a command"),
        (
            f"SHELL = /usr/bin/python3\nt:\n\t{START} a=1\n",
            "recipes for the shell `/usr/bin/python3` are not followed",
        ),
        (f"t:\n\ttrue\nt::\n\t{START} a=1\n", "t has rules with `:` and with `::`"),
        (f"A = 1\n\ttrue\nt:\n\t{START} a=1\n", "`true` is not followed"),
    ],
)
def test_what_is_not_followed_is_noted(makefile: str, reason: str, tmp_path: Path) -> None:
    found = read(tmp_path, "make t", makefile)
    assert found.command is None
    assert any(reason in note for note in found.unread)


@pytest.mark.parametrize("name", ["Makefile", "train.mk"])
def test_the_lines_of_a_block_are_not_overrides_that_were_cut_off(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(
        f"define FLAGS\ndata.train_files=/x trainer.total_epochs=1\nendef\nt:\n\t{START} $(FLAGS)\n"
    )
    found = launch.collect(
        Target(Path("/env/bin/python"), "--python", files=(path,)), Machine(environ=ENVIRON, cwd=tmp_path)
    )
    assert isinstance(found, Launch)
    assert not found.lost


def test_the_verdict_states_why_the_makefile_was_not_followed(tmp_path: Path) -> None:
    found = read(tmp_path, "make t", f"$(eval N := 1)\nt:\n\t{START} a=$(N)\n")
    (note,) = run_check(launch_starts_nothing, found).unjudged
    assert note.why == "no command that starts verl was found; Makefile: `$(eval ...)` is not followed"


@pytest.mark.slow
def test_variables_that_double_are_not_followed_to_the_end(tmp_path: Path) -> None:
    doubling = "".join(f"A{place} = $(A{place - 1})$(A{place - 1})\n" for place in range(1, 40))
    found = read(tmp_path, "make t", f"A0 = xxxxxxxxxx\n{doubling}t:\n\techo $(A39)\n\t{START} a=1\n")
    assert found.command is None
    assert any("its variables become too long" in note for note in found.unread)


def test_a_target_that_exists_is_not_taken_for_one_that_runs(tmp_path: Path) -> None:
    found = read(tmp_path, "make sub", f"sub: more.mk\n\t{START} a=1\n")
    assert found.command is None
    assert any("depends on the age of files" in note for note in found.unread)


@pytest.mark.parametrize("option", ["-e", "-E 'A = 1'", "-o x", "--eval='A = 1'", "-f a.mk -f b.mk"])
def test_an_option_that_is_not_followed_is_noted(option: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"make {option} t", f"t:\n\t{START} a=$(A)\n")
    assert found.command is None
    assert any("not followed" in note for note in found.unread)


@pytest.mark.parametrize(
    "words", [["-Otarget"], ["-Iinclude"], ["-j", "4"], ["-kj4"], ["-lnq"], ["--output-sync=none"]]
)
def test_an_attached_value_holds_no_options(words: list[str]) -> None:
    request = request_of([*words, "t"])
    assert request is not None
    assert request.runs
    assert request.goals == ["t"]


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
