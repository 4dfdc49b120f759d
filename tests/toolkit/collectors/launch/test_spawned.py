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
    "functions in the order of their calls": f"import subprocess\n\ndef more():\n    cmd.append('b=2')\n\ndef first():\n    cmd.append('a=1')\n\ncmd = [{TORCHRUN}]\nfirst()\nmore()\nmore()\nsubprocess.run(cmd)",
    "what only runs as main": f"import subprocess\nif __name__ != '__main__':\n    raise SystemExit\nelse:\n    seed = 'a=1'\n    try:\n        subprocess.run([{TORCHRUN}, seed])\n    except OSError:\n        raise SystemExit(2)",
    "a list that is only looked at": f"import shlex, subprocess\ncmd = [{TORCHRUN}, 'a=1']\nprint(shlex.join(cmd), ' '.join(cmd), f'{{cmd}}', *cmd, len(cmd))\nsubprocess.run(cmd)",
    "in place of itself": f"import os, sys\nos.execvp('torchrun', [{TORCHRUN}, *sys.argv[1:]])",
}
UNKNOWN = {
    "numbers that it computes": f"import subprocess\nsubprocess.run([{TORCHRUN}, f'a={{1 + 1}}'])",
    "words from elsewhere": f"import subprocess, settings\nsubprocess.run([{TORCHRUN}, *settings.words])",
    "a word under a condition": f"import subprocess, sys\ncmd = [{TORCHRUN}]\nif len(sys.argv) > 9:\n    cmd.append('a=1')\nsubprocess.run(cmd)",
    "a parameter of a global's name": f"import subprocess\nlr = 'a=1'\n\ndef sweep(lr='a=2'):\n    subprocess.run([{TORCHRUN}, lr])\n\nsweep()",
    "a loop's target": f"import subprocess\nword = 'a=1'\nfor word in ('a=2',):\n    pass\nsubprocess.run([{TORCHRUN}, word])",
    "a tuple": f"import subprocess\nn, seed = 1, 'a=2'\nseed = 'a=1' if n == 2 else seed\nsubprocess.run([{TORCHRUN}, seed])",
    "a tuple after a text": f"import subprocess\nseed = ['a=1']\nn, seed = 1, ['a=2']\nsubprocess.run([{TORCHRUN}, *seed])",
    "a walrus": f"import subprocess\nword = 'a=1'\nif (word := 'a=2'):\n    pass\nsubprocess.run([{TORCHRUN}, word])",
    "a with": f"import contextlib, subprocess\nword = 'a=1'\nwith contextlib.nullcontext('a=2') as word:\n    subprocess.run([{TORCHRUN}, word])",
    "an except": f"import subprocess\nword = ['a=1']\ntry:\n    import nothing\nexcept ImportError as word:\n    pass\nsubprocess.run([{TORCHRUN}, *word])",
    "an import": f"import subprocess\nword = 'a=1'\nfrom os import name as word\nsubprocess.run([{TORCHRUN}, word])",
    "a deleted name": f"import subprocess\nword = 'a=1'\ndel word\nsubprocess.run([{TORCHRUN}, word])",
    "a longer text": f"import subprocess\nword = 'a='\nword += '2'\nsubprocess.run([{TORCHRUN}, word])",
    "a nested function of its name": f"import subprocess\n\ndef main():\n    word = ['a=1']\n    def word(): pass\n    subprocess.run([{TORCHRUN}, *word])\n\nmain()",
    "a list with two names": f"import subprocess\nmore = ['a=1']\nother = more\nother[0] = 'a=2'\nsubprocess.run([{TORCHRUN}, *more])",
    "a list that a function gets": f"import subprocess\n\ndef change(words):\n    words[0] = 'a=2'\n\nmore = ['a=1']\nchange(more)\nsubprocess.run([{TORCHRUN}, *more])",
    "a function called under a condition": f"import subprocess, sys\ncmd = [{TORCHRUN}]\n\ndef more():\n    cmd.append('a=1')\n\nif len(sys.argv) > 9:\n    more()\nsubprocess.run(cmd)",
    "what does not run as main": f"import subprocess\nword = 'a=2'\nif __name__ != '__main__':\n    word = 'a=1'\nsubprocess.run([{TORCHRUN}, word])",
    "a word of the list replaced": f"import subprocess\ncmd = [{TORCHRUN}, 'a=1']\ncmd[-1] = 'a=2'\nsubprocess.run(cmd)",
}
NOT_FOLLOWED = {
    "two commands": f"import subprocess\nsubprocess.run([{TORCHRUN}])\nsubprocess.run(['verl-merge'])",
    "another folder": f"import subprocess\nsubprocess.run([{TORCHRUN}], cwd='/data')",
    "other variables": f"import subprocess\nsubprocess.run([{TORCHRUN}], env={{'A': '1'}})",
    "a variable that it sets": f"import os, subprocess\nos.environ['A'] = '1'\nsubprocess.run([{TORCHRUN}])",
    "a function that nothing calls": f"import subprocess\n\ndef train():\n    subprocess.run([{TORCHRUN}])\n",
    "a function of a command line": f"import subprocess, sys\n\ndef train():\n    subprocess.run([{TORCHRUN}])\n\n{{'train': train, 'prepare': print}}[sys.argv[1]]()",
    "a condition": f"import subprocess, torch\nif torch.cuda.device_count() > 1:\n    subprocess.run([{TORCHRUN}])",
    "a condition in an expression": f"import subprocess, sys\nlen(sys.argv) > 9 and subprocess.run([{TORCHRUN}])",
    "a loop": f"import subprocess, sys\nfor word in sys.argv:\n    subprocess.run([{TORCHRUN}])",
    "an early end": f"import subprocess, sys\nif '--dry-run' in sys.argv:\n    sys.exit()\nsubprocess.run([{TORCHRUN}])",
    "an early end in a function": f"import subprocess, sys\n\ndef usage():\n    sys.exit()\n\nif len(sys.argv) < 9:\n    usage()\nsubprocess.run([{TORCHRUN}])",
    "an early return": f"import subprocess, sys\n\ndef main():\n    if len(sys.argv) < 9:\n        return\n    subprocess.run([{TORCHRUN}])\n\nmain()",
    "a handled failure": f"import subprocess\ntry:\n    import nothing\n    subprocess.run([{TORCHRUN}])\nexcept ImportError:\n    pass",
    "a decorator": f"import click, subprocess\n\n@click.command()\ndef main():\n    subprocess.run([{TORCHRUN}])\n\nmain()",
    "what runs when it is imported": f"import subprocess\nif __name__ != '__main__':\n    subprocess.run([{TORCHRUN}])",
    "arguments that it removes": f"import subprocess, sys\nsys.argv.remove('c.d=3')\nsubprocess.run([{TORCHRUN}, *sys.argv[1:]])",
    "a variable that it removes": f"import os, subprocess\ndel os.environ['A']\nsubprocess.run([{TORCHRUN}])",
    "a long sum": f"import subprocess\nword = {' + '.join(['1'] * 2000)}\nsubprocess.run([{TORCHRUN}, word])",
    "many branches": "import subprocess, sys\nif len(sys.argv) == 0:\n    pass\n"
    + "".join(f"elif len(sys.argv) == {n}:\n    pass\n" for n in range(1200))
    + f"subprocess.run([{TORCHRUN}])",
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


def test_program_that_the_script_writes_first_is_not_the_one_on_the_disk(tmp_path: Path) -> None:
    source = f"import subprocess\nsubprocess.run([{TORCHRUN}, 'a.b=1', 'c.d=2'])\n"
    found = read(tmp_path, source, "python3 make.py > launch.py\npython3 launch.py\n")
    assert found.command is None


def test_program_with_verls_main_of_its_own_is_no_launcher(tmp_path: Path) -> None:
    source = f"import subprocess\nfrom verl.trainer import main_ppo\nsubprocess.run([{TORCHRUN}])\nmain_ppo.main()\n"
    found = read(tmp_path, source)
    assert found.command is not None
    assert found.command.module == "launch.py"


def test_job_after_a_program_that_starts_none_is_the_job(tmp_path: Path) -> None:
    source = f"import subprocess, sys\n\ndef prepare():\n    pass\n\ndef train():\n    subprocess.run([{TORCHRUN}, 'a.b=1'])\n\nif sys.argv[1] == 'train':\n    train()\n"
    found = read(tmp_path, source, "python3 launch.py prepare\ntorchrun -m verl.trainer.main_ppo c.d=2\n")
    assert found.command is not None
    assert found.command.module == "verl.trainer.main_ppo"
    assert not found.others
