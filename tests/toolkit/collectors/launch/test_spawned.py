"""The command that a Python program of the user's own starts. The program itself is the oracle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

TORCHRUN = '"torchrun", "--standalone", "--nproc_per_node=2", "-m", "verl.trainer.sft_trainer"'
KNOWN = {
    "a list": f"import subprocess, sys\nsubprocess.run([{TORCHRUN}, 'a=1', *sys.argv[1:]], check=True)",
    "a list that grows": f"import sys\nfrom subprocess import check_call\ncmd = [{TORCHRUN}]\ncmd += ['a=1']\ncmd.append('b=2')\ncmd.extend(sys.argv[1:])\ncheck_call(cmd)",
    "in a function": f"import subprocess as sp\nimport sys\n\ndef main():\n    lr = '1e-5'\n    command = [{TORCHRUN}, f'optim.lr={{lr}}'] + sys.argv[1:]\n    return sp.call(command)\n\nif __name__ == '__main__':\n    sys.exit(main())",
    "a text for a shell": "import os\nos.system('torchrun --standalone -m verl.trainer.sft_trainer a=1 b=\"x y\"')",
    "a text and shell=True": "import subprocess\nsubprocess.run('torchrun --standalone -m verl.trainer.sft_trainer a=1', shell=True)",
    "in place of itself": f"import os, sys\nos.execvp('torchrun', [{TORCHRUN}, *sys.argv[1:]])",
}
UNKNOWN = {
    "numbers that it computes": f"import subprocess\nsubprocess.run([{TORCHRUN}, f'a={{1 + 1}}'])",
    "words from elsewhere": f"import subprocess, settings\nsubprocess.run([{TORCHRUN}, *settings.words])",
    "a word under a condition": f"import subprocess, sys\ncmd = [{TORCHRUN}]\nif len(sys.argv) > 9:\n    cmd.append('a=1')\nsubprocess.run(cmd)",
    "a word of the list replaced": f"import subprocess\ncmd = [{TORCHRUN}, 'a=1']\ncmd[-1] = 'a=2'\nsubprocess.run(cmd)",
}
NOT_FOLLOWED = {
    "two commands": f"import subprocess\nsubprocess.run([{TORCHRUN}])\nsubprocess.run(['verl-merge'])",
    "another folder": f"import subprocess\nsubprocess.run([{TORCHRUN}], cwd='/data')",
    "other variables": f"import subprocess\nsubprocess.run([{TORCHRUN}], env={{'A': '1'}})",
    "a variable that it sets": f"import os, subprocess\nos.environ['A'] = '1'\nsubprocess.run([{TORCHRUN}])",
    "no list": "import subprocess, verl\nsubprocess.run(verl.command())",
}
STUB = "#!{python}\nimport json, sys\njson.dump(sys.argv, open({heard!r}, 'w'))\n"


def read(folder: Path, program: str, start: str = "python3 launch.py c.d=3 e.f=4\n") -> Launch:
    (folder / "launch.py").write_text(program)
    path = folder / "run.sh"
    path.write_text(start)
    environ = {"HOME": "/home/u", "PATH": os.environ.get("PATH", "")}
    found = launch.collect(
        Target(Path("/env/bin/python"), "--python", files=(path,)), Machine(environ=environ, cwd=folder)
    )
    assert isinstance(found, Launch)
    return found


@pytest.mark.parametrize("case", KNOWN)
def test_words_are_those_that_the_launcher_passes_on(case: str, tmp_path: Path) -> None:
    found = read(tmp_path, KNOWN[case])
    heard = tmp_path / "heard"
    stub = tmp_path / "bin" / "torchrun"
    stub.parent.mkdir()
    stub.write_text(STUB.format(python=sys.executable, heard=str(heard)))
    stub.chmod(0o755)
    environ = {**os.environ, "PATH": f"{stub.parent}:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "launch.py", "c.d=3", "e.f=4"], cwd=tmp_path, env=environ, check=True)
    words = json.loads(heard.read_text())
    assert found.command is not None
    assert found.command.module == "verl.trainer.sft_trainer"
    assert [word.text for word in found.command.words] == words[words.index(found.command.module) + 1 :]
    assert found.command.launcher[0].text == "torchrun"


@pytest.mark.parametrize("case", UNKNOWN)
def test_words_that_cannot_be_determined_are_unknown(case: str, tmp_path: Path) -> None:
    found = read(tmp_path, UNKNOWN[case])
    assert found.command is not None
    assert found.command.module == "verl.trainer.sft_trainer" or not found.command.launcher
    assert None in [word.text for word in found.command.words] or found.command.module == "launch.py"


@pytest.mark.parametrize("case", NOT_FOLLOWED)
def test_launcher_that_is_not_followed_is_the_program_itself(case: str, tmp_path: Path) -> None:
    found = read(tmp_path, NOT_FOLLOWED[case])
    assert found.command is not None
    assert found.command.module == "launch.py"
    assert not found.command.of_verl


def test_text_that_the_script_gives_to_python_is_followed_too(tmp_path: Path) -> None:
    start = f"python3 - a.b=1 <<'PY'\nimport subprocess, sys\nsubprocess.check_call([{TORCHRUN}, *sys.argv[1:]])\nPY\n"
    found = read(tmp_path, "", start)
    assert found.command is not None
    assert [word.text for word in found.command.words] == ["a.b=1"]
    assert found.command.line == 1


def test_program_with_verls_main_of_its_own_is_no_launcher(tmp_path: Path) -> None:
    source = f"import subprocess\nfrom verl.trainer import main_ppo\nsubprocess.run([{TORCHRUN}])\nmain_ppo.main()\n"
    found = read(tmp_path, source)
    assert found.command is not None
    assert found.command.module == "launch.py"
