"""Scripts that stop before the job, or that their shell refuses."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from support.launch.scripts import ENVIRON, START, read

from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ('export A=1\npython3 -m verl.trainer.main_ppo a.b="1 \\\n  c.d=2\n', 2),
        ("if true; then\n  python3 -m verl.trainer.main_ppo a.b=1\n", 3),
    ],
)
def test_syntax_errors_are_reported_with_their_line(script: str, line: int, tmp_path: Path) -> None:
    (error,) = read(tmp_path, script).refused
    assert error.line == line


@pytest.mark.parametrize(
    "script",
    [
        "python3 -m verl.trainer.main_ppo a.b=1\n",
        "source nowhere.sh\npython3 -m verl.trainer.main_ppo a.b=1\n",
        "#!/usr/bin/env zsh\nif true {\n  python3 -m verl.trainer.main_ppo a.b=1\n}\n",
    ],
)
def test_scripts_that_their_shell_accepts_are_not_reported(script: str, tmp_path: Path) -> None:
    assert read(tmp_path, script).refused == ()


def test_syntax_check_executes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, f'touch {tmp_path}/there\necho "\n').refused
    assert not (tmp_path / "there").exists()


def test_oversized_script_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("echo\n" * 500_000)
    found = launch.collect(Target(tmp_path / "python", "--python", files=(script,)), Machine())
    assert isinstance(found, Unknown)
    assert "2.5 MB" in found.reason


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the oracle")
@pytest.mark.parametrize(
    ("script", "stops"),
    [
        (f"set -xeu\necho $RUN_NAME\n{START}", True),
        ("set -o nounset\npython3 -m verl.trainer.main_ppo x.y=$RUN_NAME a.b=1\n", True),
        ("set -u\npython3 -m verl.trainer.main_ppo x.y=$RUN_NAME a.b=1 | cat\n", True),
        (f"set -u\necho ${{RUN_NAME:-x}}\n{START}", False),
        (f"set -u\nif false; then echo $RUN_NAME; fi\n{START}", False),
        (f"set -u\nset +u\necho $RUN_NAME\n{START}", False),
        (f"echo $RUN_NAME\n{START}", False),
        (f"set -u\n{START}echo $RUN_NAME\n", False),
        (f"set -e\ncd gone\n{START}", True),
        (f"set -e\ncd gone || true\n{START}", False),
        (f"cd gone\n{START}", False),
        (f"cd gone && {START}", True),
        (f"cd here && {START}", False),
        (f"set -e\nmkdir -p gone\ncd gone\n{START}", False),
        (f"set -e\nif cd gone; then echo x; fi\n{START}", False),
        (f"set -e\nsource gone/bin/activate\n{START}", True),
        (f"source gone/bin/activate\n{START}", False),
        ("python3 -m verl.trainer.main_ppo a.b=1 \\\n  c.d=x/${trainer.name} \\\n  e.f=1\n", True),
        ("python3 -m verl.trainer.main_ppo a.b=1 'c.d=x/${trainer.name}'\n", False),
        (f"echo ${{trainer.name}}\n{START}", False),
        (f"set -e\necho 'export A=1' > ./made.sh\nsource ./made.sh\n{START}", False),
        (f"set -e\ncat > ./made.sh <<EOF\nA=1\nEOF\n. ./made.sh\n{START}", False),
        (f"set -e\n{{ echo A=1; }} > ./made.sh\n. ./made.sh\n{START}", False),
        (f"set -e\nfor i in 1; do echo A=$i; done > ./made.sh\n. ./made.sh\n{START}", False),
        (f"set -e\nf() {{ echo A=1; }}\nf > ./made.sh\n. ./made.sh\n{START}", False),
        (f"set -e\nx=$(mkdir -p made && echo made)\ncd made\n{START}", False),
        (f"set -e\necho 'mkdir made' > prepare\nbash ./prepare\ncd made\n{START}", False),
        (f"set -e\n! cd gone\n{START}", False),
        (f"set -eo pipefail\nLAST=$(ls -d gone/step_* | sort -V | tail -n 1)\n{START}", True),
        (f"set -e\nLAST=$(ls gone)\n{START}", True),
        (f"set -e\nLAST=$(ls -d gone/step_* | tail -n 1)\n{START}", False),
        (f"set -e\nLAST=$(ls gone 2>/dev/null || true)\n{START}", False),
        (f"set -e\nLAST=$(ls gone) || true\n{START}", False),
        (f"set -e\nf() {{ local LAST=$(ls gone); }}\nf\n{START}", False),
        (f"set -e\nLAST=$(ls here)\n{START}", False),
        (f"set -e\nmkdir -p gone\nLAST=$(ls gone)\n{START}", False),
        (f"set -eo pipefail\nmkdir -p gone/step_1\nLAST=$(ls -d gone/step_* | tail -1)\n{START}", False),
        (f"LAST=$(ls gone)\n{START}", False),
        (f"set -e\nCDPATH=/usr\ncd lib\n{START}", False),
        (f"set -e\ncd /usr\ncd -\ncd -P here\n{START}", False),
        (f"set -u\nX=$(echo $GONE) || true\n{START}", False),
        (
            f"set -u\nlet x=3 && ((y = 2))\nfor ((z = 0; z < 2; z++)); do :; done\necho $x $y $z $SHLVL\n{START}",
            False,
        ),
        (f"set -u\ndeclare -n r=x\nr=3\necho $x\n{START}", False),
        (f"set -u\n[[ -n ${{GONE-}} && $GONE == 1 ]] || echo no\n{START}", False),
        (
            f"set -u\nsetup() {{ eval 'function module() {{ GONE=1; }}'; }}\nsetup\nmodule load x\necho $GONE\n{START}",
            False,
        ),
        (f"set -u\nexec {{GONE}}>/dev/null\nsleep 0 & wait -n -p THIS\necho $GONE $THIS\n{START}", False),
        (f": ${{GONE:?is needed}}\n{START}", True),
        (f'[ -n "${{GONE:?is needed}}" ]\n{START}', True),
        (f"GONE=\n: ${{GONE:?is needed}}\n{START}", True),
        (f"GONE=\n: ${{GONE?is needed}}\n{START}", False),
        (f"GONE=1\n: ${{GONE:?is needed}}\n{START}", False),
        (f"set -e\ncat > made.yaml <<EOF\na: ${{b.c}}\nEOF\n{START}", True),
        (f"set -e\ncat <<EOF > made.yaml || true\na: ${{b.c}}\nEOF\n{START}", False),
        (f"cat > made.yaml <<EOF\na: ${{b.c}}\nEOF\n{START}", False),
        (f"set -e\ncat > made.yaml <<'EOF'\na: ${{b.c}}\nEOF\n{START}", False),
        (f"set -e\nspack load cuda\n{START}", True),
        (f"set -e\nspack load cuda || echo none\n{START}", False),
        (f"set -e\nspack() {{ echo $1; }}\nspack load cuda\n{START}", False),
        (f"spack load cuda\n{START}", False),
        (f"shopt -s extglob\ncase foo in @(foo|bar)) N=1;; esac\n{START}", False),
    ],
)
def test_bash_stops_at_the_reported_line(script: str, stops: bool, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    found = read(tmp_path, script)
    assert bool(found.stopped) == stops
    assert found.lost == ()
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\necho started\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    environ = {**ENVIRON, "PATH": f"{tmp_path}:{ENVIRON['PATH']}"}
    command = ["bash", "run.sh"]
    ran = subprocess.run(command, check=False, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert ("started" in ran.stdout) != stops


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("export NAME = demo", "export: `=': not a valid identifier"),
        ("export NAME=demo 2nd=x", "export: `2nd=x': not a valid identifier"),
        ("export NAME= demo", ""),
        ('export "$NAME=demo"', ""),
    ],
)
def test_invalid_export_is_reported(line: str, message: str, tmp_path: Path) -> None:
    script = f"set -e\nNAME=n\n{line}\npython3 -m verl.trainer.main_ppo a=1\n"
    assert [error.message for error in read(tmp_path, script).stopped] == ([message] if message else [])
    done = subprocess.run(["bash", "-c", f"NAME=n\n{line}"], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(message) if message else not done.stderr


@pytest.mark.parametrize(
    ("guard", "line", "message"),
    [
        ("if [ ! -f data/train.parquet ]; then\n  echo 'prepare it first'\n  exit 1\nfi\n", 3, "exit 1: data/train.parquet does not exist"),
        ("[[ -d $PWD/data && -n x ]] || { echo gone; exit 2; }\n", 1, "exit 2: {here}/data does not exist"),
        ("! [ -e data ] && exit 3\n", 1, "exit 3: data does not exist"),
        ("test -e data || exit\n", 1, "exit 1: data does not exist"),
        ("python3 prepare.py --out data && \\\n", 1, "python3: can't open file prepare.py"),
        ("set -e\nbash prepare.sh\n", 2, "bash: prepare.sh: No such file or directory"),
        ("set -e\nexec > logs/run.log 2>&1\n", 2, "logs/run.log: No such file or directory"),
        ("[ -f data ] || { exit; }\n", 1, "exit 1: data does not exist"),
        ("set -e\nsource {here}/env.sh\n", 2, "{here}/env.sh: No such file or directory"),
        ("set -e\nsource /usr/no_site_here/bin/activate\n", 2, "/usr/no_site_here/bin/activate: No such file or directory"),
    ],
)  # fmt: skip
def test_script_that_ends_before_the_job(guard: str, line: int, message: str, tmp_path: Path) -> None:
    script = guard.replace("{here}", str(tmp_path)) + "python3 -m verl.trainer.main_ppo a=1 b=2"
    found = read(tmp_path, script)
    assert [(stop.line, stop.message) for stop in found.stopped] == [(line, message.format(here=tmp_path))]


@pytest.mark.parametrize(
    "guard",
    [
        "touch present\nif [ ! -f here.txt ]; then exit 1; fi\n",
        "mkdir -p data\nif [ ! -d data ]; then exit 1; fi\n",
        "if [ ! -e /dev/nvidia0 ]; then exit 1; fi\n",
        "if [ ! -f data ]; then exit 0; fi\n",
        "if [ ! -f data ]; then exit; fi\n",
        "[ ! -f data ] && exit\n",
        "[ -f data ] || { echo none; { exit; }; }\n",
        "[ -d /tmp/ray/no_session_here ] || exit 1\n",
        "#SBATCH --nodes=1\nset -e\nspack load cuda\n",
        "set -e\nsource /usr/no_site_here/setup-env.sh\nspack load cuda\n",
        "[ -f /no_workspace_here/.ready ] || { echo 'run it in the container'; exit 1; }\n",
        "[ -d /no_workspace_here ] || exit 1\n",
        "set -e\npython3 /usr/no_site_here/preflight.py\n",
        "set -e\nbash /tmp/no_folder_here/prepare.sh\n",
        "set -e\nsource /usr/no_site_here/env.sh\n",
        "set -e\nexec 200>/var/no_locks_here/x.lock\n",
        "set -e\nexec >/scratch/me/run.log 2>&1\n",
        "set -e\nLAST=$(ls /scratch/me/checkpoints)\n",
        'if [ ! -f data ]; then wget https://example.org/data; fi\nif [ -n "$UNKNOWN_HERE" ]; then exit 1; fi\n',
        "python3 prepare.py --out data\n",
        "exec > logs/run.log 2>&1\n",
        "set -e\nmkdir -p logs\nexec > logs/run.log 2>&1\n",
        "exec 2>&1\n",
        "(test -f data || exit 1)\n",
        "[ -f data ] && ls data\nif ! nvidia-smi; then exit 1; fi\n",
        "[ -f data ] && ls data\nnvidia-smi || exit 1\n",
        "[ -f data ] && exit 1\n",
        'if [ -n "$UNKNOWN_HERE" ]; then [ -f data ] || exit 1; fi\n',
        "curl -sO https://example.org/prepare.py\npython3 prepare.py && \\\n",
    ],
)
def test_script_that_may_go_on(guard: str, tmp_path: Path) -> None:
    (tmp_path / "here.txt").touch()
    found = read(tmp_path, guard + "python3 -m verl.trainer.main_ppo a=1 b=2")
    assert not found.stopped
