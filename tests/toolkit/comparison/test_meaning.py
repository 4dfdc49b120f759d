"""Commands to paste, built from untrusted values: they contain names and values only."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from verl_doctor.toolkit.comparison import document, meaning
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.target import Target


@pytest.mark.parametrize(
    ("name", "release", "command"),
    [
        ("vllm", "0.11.0", "pip install vllm==0.11.0"),
        ("torch", "2.8.0+cu128", "pip install torch==2.8.0+cu128"),
        ("verl", "0.6.1 (editable)", "pip install verl==0.6.1"),
        ("x", "1!2.0", "pip install 'x==1!2.0'"),
        ("x", "", ""),
        ("x", "1.0; rm -rf ~", ""),
        ("x", "1.0\nrm", ""),
        ("x", "$(id)", ""),
        ("x;id", "1.0", ""),
        ("--index-url=evil", "1.0", ""),
    ],
)
def test_install_command_names_a_release(name: str, release: str, command: str) -> None:
    assert meaning.install(name, release, "") == command


@pytest.mark.parametrize(
    ("old", "new", "command"),
    [
        ("0.11.0", "0.24.0", ""),
        ("0.11.0", "0.24.0 (editable)", ""),
        ("0.24.0", "0.11.0", "pip install vllm==0.24.0"),
        ("2.8.0+cu128", "2.8.0", "pip install vllm==2.8.0+cu128"),
        ("0.11.0", "of unknown version", "pip install vllm==0.11.0"),
    ],
)
def test_upgrade_is_never_reverted(old: str, new: str, command: str) -> None:
    assert meaning.install("vllm", old, new) == command


@pytest.mark.parametrize("old", ["", "a b", "$(id)"])
def test_variables_need_a_name(old: str) -> None:
    assert meaning.export("NCCL_$(id)", old, "x") == ""
    exported = meaning.export("NCCL_DEBUG", old, "x")
    assert shlex.split(exported) == (["export", f"NCCL_DEBUG={old}"] if old else ["unset", "NCCL_DEBUG"])


@pytest.mark.parametrize(
    ("old", "exported"),
    [
        ("1024", "ulimit -n 1024  # before Ray is started"),
        ("unlimited", "ulimit -n unlimited  # before Ray is started"),
        ("1; id", ""),
        ("undetermined", ""),
    ],
)
def test_limits_are_numbers(old: str, exported: str) -> None:
    assert meaning.ulimit("open files", old, "") == exported


@pytest.mark.parametrize(
    ("step", "command"),
    [
        (
            "verl-doctor fix --select PKG101",
            "verl-doctor fix --select PKG101 --python /env/bin/python --tree vllm=/src/vllm run.sh",
        ),
        (
            "verl-doctor check LAUNCH_SCRIPT",
            "verl-doctor check --python /env/bin/python --tree vllm=/src/vllm run.sh",
        ),
        (
            "verl-doctor check --select PKG  # shows it",
            "verl-doctor check --select PKG --python /env/bin/python --tree vllm=/src/vllm run.sh  # shows it",
        ),
        (
            "verl-doctor patches apply 'my old.json' --apply",
            "verl-doctor patches apply 'my old.json' --apply --python /env/bin/python --tree vllm=/src/vllm",
        ),
        ("pip install verl==0.9.1", "/env/bin/python -m pip install verl==0.9.1"),
        ("export A=1", "export A=1"),
        ("copy it here: verl-doctor fix it", "copy it here: verl-doctor fix it"),
        ("", ""),
    ],
)
def test_pasted_command_is_about_the_target_that_the_user_named(step: str, command: str) -> None:
    named = Target(Path("/env/bin/python"), "--python", vllm=Path("/src/vllm"), files=(Path("run.sh"),))
    assert meaning.complete(step, named) == command


@pytest.mark.parametrize("python", ["", "/env/bin/python -m "])
def test_package_whose_tree_was_named_is_installed_as_another_tree(python: str) -> None:
    named = Target(
        Path("/env/bin/python"),
        "--python" if python else "verl-doctor's own",
        verl=Path("/src/verl"),
        libraries=(("ray", Path("/src/ray")),),
    )
    new = f"{python}pip install --no-deps --target FOLDER"
    comment = "  # FOLDER: a new one, to be named with"
    assert meaning.complete("pip install verl==0.9.1", named) == f"{new} verl==0.9.1{comment} --verl"
    assert meaning.complete("pip install 'ray==1!2.0'", named) == (
        f"{new} 'ray==1!2.0'{comment} --tree ray=FOLDER"
    )
    assert meaning.complete("pip install torch==2.8.0", named) == f"{python}pip install torch==2.8.0"


def test_command_for_a_separate_tree_is_not_joined_with_others() -> None:
    named = Target(Path("/env/bin/python"), "virtual environment", verl=Path("/src/verl"))
    steps = [meaning.complete(f"pip install {name}==1", named) for name in ("torch", "verl")]
    found = [Difference("package", "x", "1", "", why="why", next=step) for step in steps]
    assert [group.do for group in document.groups(found, every=True)] == [""]


def test_command_names_no_target_that_the_user_did_not_name() -> None:
    found = Target(Path("/env/bin/python"), "virtual environment")
    assert meaning.complete("pip install verl==0.9.1", found) == "pip install verl==0.9.1"
    assert meaning.complete("verl-doctor check LAUNCH_SCRIPT", found) == "verl-doctor check LAUNCH_SCRIPT"
