"""Files and folders that are missing where a job starts, and those that only seem to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.launch.scripts import START, read

from verl_doctor.toolkit.collectors.launch.launch import Launch, may_be_changed, may_be_made
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target


def test_program_written_by_the_script_is_not_missing(tmp_path: Path) -> None:
    found = read(tmp_path, "echo 'import verl.trainer' > job.py\npython3 ./job.py a.b=1 c.d=2\n")
    assert found.command
    assert found.stopped == ()


SHELL_FUNCTIONS = [
    ("", True),
    ("mkdir -p out; nvidia-smi; cd out", True),
    ("export PATH=$HOME/miniconda3/bin:$PATH", False),
    ("PATH=$PATH", False),
    ('[ -n "$X" ] && export PATH=$HOME/bin:$PATH', False),
    ("bash install.sh -b -p $HOME/miniconda3", False),
    ("./install", False),
    ("curl -L https://x.example/conda | tar -xvj -C $HOME/bin conda", False),
    ("wget -q https://x.example/conda -O $HOME/bin/conda", False),
    ("sudo apt-get install -y conda", False),
    ("pip install conda", False),
    ("python3 -m pip install conda", False),
    ("python3 setup.py", False),
    ("uv tool install conda", False),
    ("make install", False),
    ("ln -s $HOME/c/bin/conda $HOME/bin/conda", False),
    ("install -m 755 c $HOME/bin", False),
    ("$X", False),
    ("X=$(curl -L https://x.example/conda | bash)", False),
    ("X=$(date +%s)", True),
    ("cat a > $HOME/bin/conda", False),
    ("env bash install.sh", False),
    ("(dnf install -y conda)", False),
    ("shopt -s expand_aliases\nalias conda=micromamba", False),
    ("#PJM -L rscgrp=a", False),
    ("#flux: -N 2", False),
    ("#PBS -N a", False),
    ("#SBATCH -N 2", False),
]


@pytest.mark.parametrize(("before", "known"), SHELL_FUNCTIONS)
def test_function_of_the_users_shell_that_the_script_cannot_have(
    tmp_path: Path, before: str, known: bool
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    names = ("mkdir", "nvidia-smi", "bash", "curl", "tar", "wget", "sudo", "apt-get", "pip", "date", "cat", "env", "python3", "uv", "make", "ln", "install", "dnf")  # fmt: skip
    for name in names:
        (folder / name).touch(mode=0o755)
    (tmp_path / "out").mkdir()
    for name in ("install", "setup.py", "install.sh"):
        (tmp_path / name).touch(mode=0o755)
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{before}\nset -e\nconda info\npython3 -m verl.trainer.main_ppo a=1\n")
    environ = {"HOME": str(tmp_path), "PATH": str(folder)}
    found = launch.collect(
        Target(Path("/env/bin/python"), "--python", files=(path,)), Machine(environ=environ, cwd=tmp_path)
    )
    assert isinstance(found, Launch)
    assert [error.message for error in found.stopped] == (["conda: command not found"] if known else [])


@pytest.mark.parametrize(
    ("before", "path", "may"),
    [
        ("", "/data/train.parquet", False),
        ("ls /data; mkdir -p /data; pip install -e /data", "/data/train.parquet", False),
        ("python3 prepare.py --out /data", "/data/train.parquet", True),
        ("python3 prepare.py --out=/other", "/data/train.parquet", False),
        ("python3 prepare.py", "/data/train.parquet", True),
        ("python3 -m pip install verl", "/data/train.parquet", False),
        ("python3 - <<'PY'\nmake()\nPY", "/data/train.parquet", True),
        ("python3 <<'PY'\nmake()\nPY", "/data/train.parquet", True),
        ("python3 -c 'import make; make.table().to_parquet(make.PLACE)'", "/data/train.parquet", True),
        ("python3 -c 'import torch; print(torch.__version__)'; python3 -V", "/data/train.parquet", False),
        ("bash gone.sh", "/data/train.parquet", True),
        ("ln -sfn /mnt/data /data", "/data/train.parquet", True),
        ("cp /mnt/config.json /models/qwen/config.json", "/models/qwen", True),
        ("hf download a/b --local-dir ~/models/b", "/home/u/models/b", True),
        ("cat > /job/reward.py <<EOF\ndef f(): pass\nEOF", "/job/reward.py", True),
        ("cat < /job/reward.py", "/job/reward.py", False),
        ("tar xf data.tar", "/data/train.parquet", True),
        ("cp /mnt/a.parquet /data/raw/../train.parquet", "/data/train.parquet", True),
        ("cp /mnt/train.parquet /data/", "/data/raw/../train.parquet", True),
        ("dd if=/mnt/a.parquet of=/data/train.parquet", "/data/train.parquet", True),
        ("find /mnt -name '*.parquet' -exec cp {} /data ';'", "/data/train.parquet", True),
        ("find /data -name '*.parquet'", "/data/train.parquet", False),
    ],
)
def test_files_that_the_script_may_create_are_recognised(
    tmp_path: Path, before: str, path: str, may: bool
) -> None:
    found = read(tmp_path, f"{before}\n{START}python3 evaluate.py /data\n")
    assert may_be_made(found, path) is may


@pytest.mark.parametrize(
    ("around", "is_here"),
    [("", True), ("nohup", True), ("srun -N 1", False), ("docker exec c", False), ("kubectl exec p --", False), ("apptainer exec i.sif", False)],
)  # fmt: skip
def test_paths_inside_a_container_are_not_reported(around: str, is_here: bool, tmp_path: Path) -> None:
    inside = "export PATH=/image/bin; cd /gone; python3 main_ppo.py a.b=1 c.d=2 > /gone/log"
    found = read(tmp_path, f"{around} bash -c '{inside}'\n")
    assert found.command
    assert bool(found.stopped) == is_here


@pytest.mark.parametrize(
    "command", ["module load cuda", "conda activate x", "our_function_for_modules", "git submodule update"]
)
def test_variables_that_the_login_shell_may_set_are_not_missing(command: str, tmp_path: Path) -> None:
    lines = "set -e\ncd third/verl\n" if command.startswith("git") else "set -u\necho $EBROOTCUDA\n"
    assert read(tmp_path, lines + START).stopped
    assert not read(tmp_path, f"{command}\n{lines}{START}").stopped
    assert not read(tmp_path, f"#!/bin/bash -l\nset -u\necho $EBROOTCUDA\n{START}").stopped


@pytest.mark.parametrize(
    ("script", "lacks"),
    [
        ("/nowhere/bin/python3 -m verl.trainer.main_ppo a=1", "/nowhere/bin/python3"),
        ("python3 -m venv env\nenv/bin/python3 -m verl.trainer.main_ppo a=1", ""),
        ("docker run image /nowhere/bin/python3 -m verl.trainer.main_ppo a=1", ""),
        ("srun /nowhere/bin/python3 -m verl.trainer.main_ppo a=1", ""),
        ("[ -d /x ] && /nowhere/bin/python3 -m verl.trainer.main_ppo a=1", ""),
        ("python3 verl/trainer/main_ppo.py a=1", "verl/trainer/main_ppo.py"),
        ("cd /tmp/nowhere-$RANDOM\npython3 verl/trainer/main_ppo.py a=1", ""),
        ("git clone https://host/verl\npython3 verl/trainer/main_ppo.py a=1", ""),
        ("python3 -m verl.trainer.main_ppo a=1 > logs/run.log 2>&1", "logs/run.log"),
        ("python3 -m verl.trainer.main_ppo a=1 &>> logs/run.log", "logs/run.log"),
        ("mkdir -p logs\npython3 -m verl.trainer.main_ppo a=1 > logs/run.log", ""),
        ("python3 -m verl.trainer.main_ppo a=1 > run.log", ""),
        ("python3 -m verl.trainer.main_ppo a=1 2>&1 | tee logs/run.log", ""),
        ("python3 -m verl.trainer.main_ppo a=1 > $LOGS/run.log", ""),
    ],
)
def test_files_missing_at_the_start_of_the_job_are_reported(script: str, lacks: str, tmp_path: Path) -> None:
    stopped = read(tmp_path, f"{script}\n").stopped
    assert [lacks in error.message for error in stopped] == ([True] if lacks else [])


def test_files_beside_the_script_are_not_missing(tmp_path: Path) -> None:
    (tmp_path / "scripts" / "data").mkdir(parents=True)
    (tmp_path / "scripts" / "prepare.py").touch()
    script = "set -e\n[ -d data ] || exit 1\npython3 prepare.py\npython3 -m verl.trainer.main_ppo a=1 b=2"
    assert not read(tmp_path, script, name="scripts/run.sh").stopped
    assert read(tmp_path, script, name="run.sh").stopped


@pytest.mark.parametrize(
    ("before", "may"),
    [
        ("ls ck; mkdir -p ck; find ck -name '*.pt'; rm -rf old; echo 1 > log; cat ck/step/a", False),
        ("rm -rf ck && mkdir ck", True),
        ('if [ -n "$X" ]; then rm -rf ck; fi', True),
        ("mv ck old", True),
        ("rm -rf ck/*", True),
        ("rm -rf *", True),
        ("rm -rf other/*", False),
        ("rm -f ck/step", True),
        ("rm -f ck/step/model_0.pt", True),
        ("rm -f ck/other", False),
        ("rm -rf $X", True),
        ("sudo rm -rf ck", True),
        ("(cd ck && rm -rf step)", True),
        ("cd $X && rm -rf step; cd -", True),
        ("find . -delete", True),
        ("find ck -name '*.pt' -exec rm {} +", True),
        ("ls | xargs rm -rf", True),
        ("ln -sfn other ck", True),
        ("rsync -a --delete other/ ck/", True),
        ("echo 5 > ck/step", True),
        ("bash -c 'echo 5 > ck/step'", True),
        ("python3 -c 'import shutil; shutil.rmtree(\"ck\")'", True),
        ("python3 - <<'E'\nimport shutil\nshutil.rmtree('ck')\nE", True),
        ("clear_old() { rm -rf ck; }\nclear_old", True),
        ("clear_old() { rm -rf ck; }", False),
    ],
)
def test_path_that_the_script_may_remove_first(tmp_path: Path, before: str, may: bool) -> None:
    (tmp_path / "ck").mkdir()
    found = read(tmp_path, f"{before}\npython3 -m verl.trainer.main_ppo a=1 > ck/step.log\nrm -rf ck\n")
    assert may_be_changed(found, str(tmp_path / "ck" / "step")) == may


@pytest.mark.parametrize(
    ("before", "folders"),
    [
        ("mkdir -p logs/first /data/out", ("@/logs/first", "/data/out")),
        ('OUT=runs/a\nmkdir -m 755 -p "$OUT"', ("@/755", "@/runs/a")),
        ("mkdir -p $(date +%F)", ("/",)),
        ("rmdir logs", ()),
    ],
)
def test_folders_that_a_script_makes(tmp_path: Path, before: str, folders: tuple[str, ...]) -> None:
    found = read(tmp_path, f"{before}\n{START}")
    script = Path(found.command.path).parent if found.command else tmp_path
    places = {str(Path.cwd()), str(script), str(tmp_path)}
    assert any(
        found.folders == tuple(folder.replace("@", place) for folder in folders) for place in places
    ), found.folders
    assert found.made == () or folders == ()
