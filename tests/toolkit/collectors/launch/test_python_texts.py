"""Programs that a Python text of the script's own starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.launch.scripts import read, words_of

from verl_doctor.toolkit.collectors.launch.launch import may_be_made


@pytest.mark.parametrize(
    ("script", "module", "words"),
    [
        ("python - a=1 b=2 <<'EOF'\nimport runpy\nrunpy.run_module('verl.trainer.main_ppo', run_name='__main__')\nEOF", "verl.trainer.main_ppo", ["a=1", "b=2"]),
        ("python3 -u <<EOF\nimport sys\nfrom runpy import run_module\nsys.argv = ['x', 'a=1']\nsys.argv += ['b=2']\nrun_module(\"verl.trainer.sft_trainer\")\nEOF", "verl.trainer.sft_trainer", ["a=1", "b=2"]),
        ("python3 -c 'from verl.trainer.main_ppo import main; main()' a=1 b=2", "verl.trainer.main_ppo", ["a=1", "b=2"]),
        ("python3 - a=1 <<EOF\nimport sys\nfrom verl.trainer import main_ppo\nsys.argv.append(open('x').read())\nmain_ppo.main()\nEOF", "verl.trainer.main_ppo", [None]),
        ("python3 <<EOF\nfrom sys import argv\nargv += 'a=1 b=2'.split()\nfrom verl.trainer.main_ppo import main\nmain()\nEOF", "verl.trainer.main_ppo", [None]),
        ("python3 - <<EOF\nimport sys as s\ns.argv[1:] = ['a=1']\nfrom verl.trainer.main_ppo import main\nmain()\nEOF", "verl.trainer.main_ppo", [None]),
        ("python3 - <<EOF\nimport sys, runpy\nsetattr(sys, 'argv', ['x', 'a=1'])\nrunpy.run_module('verl.trainer.main_ppo')\nEOF", "verl.trainer.main_ppo", [None]),
        ("python3 - <<EOF\nfrom unittest import mock\nfrom verl.trainer.main_ppo import main\nwith mock.patch('sys.argv', ['x', 'a=1']):\n  main()\nEOF", "verl.trainer.main_ppo", [None]),
    ],
)  # fmt: skip
def test_trainer_that_a_python_text_starts(
    script: str, module: str, words: list[str | None], tmp_path: Path
) -> None:
    found = read(tmp_path, script)
    assert found.command
    assert found.command.module == module
    assert words_of(found) == words


@pytest.mark.parametrize(
    ("lines", "moves", "makes"),
    [
        ("", False, False),
        ("sys.argv += ['trainer.save_freq=1']", False, False),
        ("import os\nos.chdir('/data')", True, True),
        ("from os import chdir as go\ngo('/data')", True, True),
        ("import pandas as pd\npd.DataFrame().to_parquet('made.parquet')", False, True),
        ("from subprocess import run\nrun(['prepare'])", False, True),
    ],
)
def test_what_a_python_text_does_before_it_starts_the_trainer(
    lines: str, moves: bool, makes: bool, tmp_path: Path
) -> None:
    found = read(
        tmp_path,
        f"python - a=1 <<EOF\nimport sys, runpy\n{lines}\nrunpy.run_module('verl.trainer.main_ppo')\nEOF",
    )
    assert found.command
    assert (found.command.folder == "", may_be_made(found, "/data/made.parquet")) == (moves, makes)


@pytest.mark.parametrize(
    ("command", "is_safe"),
    [
        ("python3 -P -m verl.trainer.main_ppo a=1", True),
        ("python3 -uI -m verl.trainer.main_ppo a=1", True),
        ("python3 -u -m verl.trainer.main_ppo -P", False),
        ("python3 -P -m torch.distributed.run --standalone -m verl.trainer.sft_trainer a=1", False),
    ],
)
def test_option_that_keeps_the_folder_off_the_path(command: str, is_safe: bool, tmp_path: Path) -> None:
    settings = read(tmp_path, command).settings
    assert any(setting.name == "PYTHONSAFEPATH" for setting in settings) == is_safe


@pytest.mark.parametrize(
    "script",
    [
        "python - <<EOF\nimport verl\nprint(verl.__version__)\nEOF",
        "python -c 'import verl, sys; print(sys.argv)'",
        "python -c 'from verl.trainer.main_ppo import main'",
        "python - <<EOF\nverl main(\nEOF",
    ],
)
def test_python_text_that_starts_no_trainer(script: str, tmp_path: Path) -> None:
    (tmp_path / "later.sh").touch()
    found = read(tmp_path, f"{script}\npython3 -m verl.trainer.main_ppo a=1")
    assert words_of(found) == ["a=1"]


def test_python_text_that_is_nested_too_deeply_is_not_followed(tmp_path: Path) -> None:
    source = f"import verl.trainer.main_ppo\nn = {' + '.join(['1'] * 2000)}\nverl.trainer.main_ppo.main()\n"
    found = read(tmp_path, f"python3 - a=1 <<'EOF'\n{source}EOF\npython3 -m verl.trainer.sft_trainer b=1\n")
    assert found.command is not None
    assert found.command.module == "verl.trainer.sft_trainer"
