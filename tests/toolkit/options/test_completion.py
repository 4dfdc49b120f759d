"""Shell completions, which always include file names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import CompletionItem

from verl_doctor.toolkit.cli.main import cli
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.logs.signature import of_logs_alone
from verl_doctor.toolkit.options import completion
from verl_doctor.toolkit.options.completing import codes_with_titles


def completed(*words: str) -> list[CompletionItem]:
    """Complete the last of these words."""
    shell = completion._Bash(cli, {}, "verl-doctor", completion.VARIABLE)
    return shell.get_completions(list(words[:-1]), words[-1])


def values(*words: str) -> list[str]:
    return [item.value for item in completed(*words) if item.type == "plain"]


@pytest.mark.slow
def test_completed_codes_are_those_of_the_registry() -> None:
    codes = [code for code, _ in codes_with_titles()]
    ours = [check.code for check in registry.load().checks]
    of_logs = set(of_logs_alone())
    assert [code for code in codes if not code.startswith("LOG")] == ours
    assert {code for code in codes if code.startswith("LOG")} >= of_logs
    assert all(title for _, title in codes_with_titles())


@pytest.mark.slow
def test_codes_and_families_complete_after_commas() -> None:
    assert values("check", "--select", "VLLM10")[:2] == ["VLLM101", "VLLM102"]
    assert values("fix", "--ignore", "PY100,vll")[:2] == ["PY100,VLLM", "PY100,VLLM101"]
    assert "PY100,PY100" not in values("check", "--select", "PY100,PY10")


def test_topics_and_codes_complete_after_explain() -> None:
    assert values("explain", "var") == ["variables"]
    assert "VLLM101" in values("explain", "vllm1")
    assert values("explain", "--schema", "sm") == ["smoke"]
    assert values("explain", "--completion", "") == ["bash", "zsh", "fish"]


def test_commands_complete_along_with_files() -> None:
    assert values("che") == ["check", "checklist"]
    assert "demo" not in values("")
    assert [item.type for item in completed("run") if item.type != "plain"] == ["file"]
    assert "list" in values("patches", "")


@pytest.mark.parametrize(
    "words",
    [("check", ""), ("logs", "run"), ("check", "--python", ""), ("compare", ""), ("fix", "run.sh", "")],
)
def test_files_complete_where_files_are_expected(words: tuple[str, ...]) -> None:
    assert "file" in {item.type for item in completed(*words)}


def test_trees_and_options_complete() -> None:
    assert values("check", "--tree", "v") == ["vllm="]
    assert "--vllm" not in values("check", "--v")
    assert values("check", "--verb") == ["--verbose"]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_script_is_valid_for_its_shell(shell: str, tmp_path: Path) -> None:
    script = completion.script(shell, cli)
    assert "verl-doctor" in script
    assert "%(" not in script
    program = shutil.which(shell)
    if program is not None:
        file = tmp_path / "script"
        file.write_text(script)
        assert subprocess.run([program, "-n", file], check=False, timeout=60).returncode == 0


@pytest.mark.slow
def test_bash_completes_words_and_files(tmp_path: Path) -> None:
    """With a program that answers as the doctor would, and with one that cannot be started."""
    (tmp_path / "run one.sh").touch()
    (tmp_path / "verl-doctor").write_text(f'#!/bin/sh\nexec {sys.executable} -m verl_doctor.toolkit "$@"\n')
    (tmp_path / "verl-doctor").chmod(0o755)
    (tmp_path / "script").write_text(completion.script("bash", cli))
    completion_script = """source ./script
COMP_WORDS=(verl-doctor "$@"); COMP_CWORD=$#
_verl_doctor_completion verl-doctor "${@: -1}" ""
printf '%s\\n' "${COMPREPLY[@]}"
complete -p verl-doctor
"""

    def completions(*words: str, path: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", completion_script, "bash", *words],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            timeout=120,
            env={**os.environ, "PATH": path},
        )
        return done.stdout.splitlines()

    path = f"{tmp_path}:{os.environ['PATH']}"
    assert completions("check", "--select", "VLLM101", path=path)[0] == "VLLM101"
    assert "run one.sh" in completions("check", "run", path=path)
    assert "-o default" in completions("check", "run", path="/usr/bin:/bin")[-1]
