"""The pages that are about no single rule."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.miniatures.variant_verl import variant_verl
from support.running import Doctor

from verl_doctor.toolkit.commands.explain import quick_card
from verl_doctor.toolkit.commands.explain.answer import PageAnswer
from verl_doctor.toolkit.commands.explain.topics import TOPICS, page
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.logs.signature import of_code

SRUN = """#!/bin/sh
shift 4
shift
exec "$@"
"""


@pytest.mark.slow
def test_each_line_of_the_quick_card_names_a_fault_with_a_remedy() -> None:
    entries = quick_card.entries()
    assert len({entry.line for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.do
        assert entry.means
        assert registry.load().check(entry.code) or of_code(entry.code)


def test_quick_card_line_without_a_fault_is_an_error() -> None:
    with pytest.raises(ValueError, match="no signature names a fault for: all is well"):
        quick_card._entry("all is well")


@pytest.mark.parametrize("topic", [name for name in TOPICS if name != "variables"])
def test_rules_named_on_a_page_exist(topic: str) -> None:
    known = registry.load()
    codes = set(re.findall(r"\b[A-Z]{2,5}\d{3}\b", page(topic)))
    assert {code for code in codes if not known.check(code) and not of_code(code)} == set()


def test_quick_card_is_shown_without_a_code(here: Doctor, tmp_path: Path) -> None:
    assert here("explain", cwd=tmp_path).stdout == page("card")
    assert "do: " in page("card")


def test_card_on_a_terminal_shows_every_character_of_a_remedy() -> None:
    shown = "\n".join(str(line) for line in PageAnswer("card", page("card")).text_lines(200))
    words = {word.rstrip(";,.:") for entry in quick_card.entries() for word in entry.do.split()}
    assert "print(verl.__path__)" in " ".join(words)
    assert [word for word in sorted(words) if word not in shown] == []


@pytest.mark.slow
def test_unknown_topic_lists_the_available_ones(here: Doctor, tmp_path: Path) -> None:
    done = here("explain", "slrum", cwd=tmp_path)
    assert done.returncode == 2
    assert "slurm" in done.stderr


def test_variables_of_the_installed_packages_are_shown(here: Doctor, tmp_path: Path) -> None:
    done = here("explain", "variables", "--python", sys.executable, cwd=tmp_path)
    assert done.returncode == 0
    assert "* `VLLM_ATTENTION_BACKEND`: the attention backend" in done.stdout


@pytest.mark.slow
def test_batch_script_of_the_slurm_page_runs(tmp_path: Path) -> None:
    (text,) = re.findall(r"```sh\n(#!/bin/bash.*?)```", page("slurm"), re.DOTALL)
    programs, environment = tmp_path / "bin", tmp_path / "env" / "bin"
    programs.mkdir()
    environment.mkdir(parents=True)
    (environment / "activate").write_text("true\n")
    (tmp_path / "run.sh").write_text("echo trained\n")
    variant_verl(tmp_path)  # without a verl nothing can be agreed on
    doctor = f'#!/bin/sh\nexec {sys.executable} -m verl_doctor.toolkit "$@" --python {sys.executable}\n'
    for name, program in (("srun", SRUN), ("verl-doctor", doctor)):
        (programs / name).write_text(program)
        (programs / name).chmod(stat.S_IRWXU)
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "node[1-2]"}

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False
        )

    agreed = run("verl-doctor", "guard", "--agree")
    assert agreed.returncode == 0, agreed.stderr
    done = run("bash", "-c", text.replace(" || exit 1\nbash", "\nbash"))
    assert done.stdout.endswith("trained\n"), done.stderr
    assert "node[1-2]" in done.stdout


def test_beginning_of_a_code_offers_the_codes_that_begin_with_it(here: Doctor, tmp_path: Path) -> None:
    done = here("explain", "cfg12", cwd=tmp_path)
    codes = [check.code for check in registry.load().checks if check.code.startswith("CFG12")]
    assert done.returncode == 2
    assert f"codes that begin with it: {', '.join(codes)}\n" in done.stderr


def test_page_of_verdicts_is_a_topic(here: Doctor, tmp_path: Path) -> None:
    done = here("explain", "verdicts", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, page("verdicts"))
    assert "| NOT CHECKED |" in page("verdicts")
