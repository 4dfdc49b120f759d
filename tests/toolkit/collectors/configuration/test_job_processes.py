"""How processes are started: torchrun's options as the installed torch has them, and programs that need ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses, job_processes
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word

RUN = """
parser.add_argument("--nnodes", action=env)
parser.add_argument("--nproc-per-node", "--nproc_per_node", action=env)
parser.add_argument("--standalone", action="store_true")
parser.add_argument("-m", "--module", action="store_true")
"""


def look(folder: Path, *launcher: str | None, program: str = "") -> JobProcesses:
    (folder / "torch" / "distributed").mkdir(parents=True)
    (folder / "torch" / "distributed" / "run.py").write_text(RUN)
    (folder / "program.py").write_text(program)
    interpreter = Interpreter(
        executable="/env/bin/python", version="3.12.0", implementation="CPython", cache_tag="cpython-312",
        environment="venv", prefix="/env", sys_path=(str(folder),), site_packages=(str(folder),),
        system="Linux", machine="x86_64", glibc="2.35", verl="", vllm="",
    )  # fmt: skip
    words = tuple(Word(word, "run.sh", 2, word or "$N") for word in launcher)
    launch = Launch((), command=Command("verl.trainer.sft_trainer", (), "run.sh", 2, launcher=words))
    found = job_processes.collect(Configuration(str(folder / "program.py"), "", ""), launch, interpreter)
    assert isinstance(found, JobProcesses)
    return found


@pytest.mark.parametrize("program", ["", "initialize_global_process_group()"])
def test_program_that_requires_ranks_is_detected(tmp_path: Path, program: str) -> None:
    assert look(tmp_path, program=program).needs_ranks is bool(program)


def test_options_are_read_by_name(tmp_path: Path) -> None:
    found = look(tmp_path, "torchrun", "--standalone", "--nproc-per-node", "8", "--nno=2", "-m")
    assert found.options == {"standalone": None, "nproc_per_node": "8", "nnodes": "2"}
    assert (found.unknown, found.undetermined) == ((), False)


def test_unknown_option_is_reported(tmp_path: Path) -> None:
    assert look(tmp_path, "torchrun", "--num_gpus=8", "-m").unknown == ("--num_gpus",)


@pytest.mark.parametrize("option", ["--use-env", "--use_env"])
def test_option_of_the_old_launcher(tmp_path: Path, option: str) -> None:
    old = look(tmp_path / "old", "-m", "torch.distributed.launch", option, "--nproc_per_node", "2", "-m")
    assert (old.unknown, old.options) == ((), {"use_env": None, "nproc_per_node": "2"})
    assert look(tmp_path / "new", "torchrun", option, "-m").unknown == (option,)


def test_unknown_value_leaves_the_count_undetermined(tmp_path: Path) -> None:
    assert look(tmp_path, "torchrun", "--nproc_per_node", None, "-m").undetermined
