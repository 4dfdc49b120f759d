"""Whether the module that a script starts exists in verl, or on the job's path."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.environments import interpreter

from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.program_module import ProgramModule, program_module
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

NOT_READ = Unknown("not read")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("module", "missing"),
    [
        ("verl.trainer.main_ppo", False),
        ("verl.trainer.ppo_main", True),
        ("verl.tools", False),
        ("verl.trainer", True),
    ],
)
def test_runnable_module_is_a_file_or_a_package_with_main(tmp_path: Path, module: str, missing: bool) -> None:
    files = {"__init__.py": "", "trainer/__init__.py": "", "trainer/main_ppo.py": "if __name__ == '__main__':\n    pass\n", "tools/__main__.py": ""}  # fmt: skip
    write(tmp_path / "verl", files)
    trees = VerlTrees(Tree(str(tmp_path / "verl"), "verl", "0.9.1", "site-packages"), "")
    launch = Launch((), command=Command(module, (), "run.sh", 2))
    found = program_module.collect(launch, trees, NOT_READ, JobVariables(), Machine(cwd=tmp_path))
    assert isinstance(found, ProgramModule)
    assert found.missing is missing
    assert found.programs == (("verl.trainer.main_ppo",) if missing else ())
    for module in ("mine.py", "data.train_files=/data/train.parquet"):
        other = Launch((), command=Command(module, (), "run.sh", 2))
        assert isinstance(program_module.collect(other, trees, NOT_READ, JobVariables(), Machine()), Absent)


@pytest.mark.parametrize(
    ("made", "on_path", "lacking"),
    [
        ("", "", "recipe"),
        ("recipe/a.py", "", "recipe.one"),
        ("recipe/__init__.py", "", ""),
        ("recipe/one/a.py", "", "recipe.one.main"),
        ("recipe/one/main.py", "", ""),
        ("recipe/one/main/__main__.py", "", ""),
        ("more/recipe.py", "more", ""),
        ("more/x.py", "more", "recipe"),
        ("more/__editable___recipe_finder.py", "more", ""),
    ],
)
def test_package_of_another_program(tmp_path: Path, made: str, on_path: str, lacking: str) -> None:
    write(tmp_path / "verl", {"__init__.py": "", "experimental/one/main.py": ""})
    if made:
        write(tmp_path, {made: ""})
    trees = VerlTrees(Tree(str(tmp_path / "verl"), "verl", "0.9.1", "site-packages"), "")
    launch = Launch((), command=Command("recipe.one.main", (), "run.sh", 2))
    job = JobVariables({"PYTHONPATH": on_path} if on_path else {})
    found = program_module.collect(launch, trees, interpreter(), job, Machine(cwd=tmp_path))
    assert isinstance(found, ProgramModule if lacking else Absent)
    if isinstance(found, ProgramModule):
        assert found.lacking == lacking
        assert found.programs == ("verl.experimental.one.main",)
    unsure = replace(job, undetermined=("PYTHONPATH",))
    assert isinstance(
        program_module.collect(launch, trees, interpreter(), unsure, Machine(cwd=tmp_path)), Absent
    )


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("python3 -m recipe.one.main", True),
        ("if [ -d /code ]; then cd /code; fi\npython3 -m recipe.one.main", False),
        ("#SBATCH --chdir=/code\npython3 -m recipe.one.main", False),
        ("srun -D /code python3 -m recipe.one.main", False),
        ("mpirun -x PYTHONPATH=/code python3 -m recipe.one.main", False),
        ("module load recipes\npython3 -m recipe.one.main", False),
        ('eval "$(recipes env)"\npython3 -m recipe.one.main', False),
        ("export $(cat .env | xargs)\npython3 -m recipe.one.main", False),
    ],
)
def test_folder_and_variables_that_the_script_leaves_open(tmp_path: Path, script: str, missing: bool) -> None:
    write(tmp_path, {"verl/__init__.py": "", "run.sh": script})
    launch = Launch(
        ((str(tmp_path / "run.sh"), "shell script"),), command=Command("recipe.one.main", (), "run.sh", 1)
    )
    assert _lacks(launch, tmp_path) is missing


@pytest.mark.parametrize(
    "launch",
    [
        Launch((), command=Command("recipe.one.main", (), "run.sh", 2, names=("/usr/bin/uv", "python"))),
        Launch((), command=Command("recipe.one.main", (), "run.sh", 2), installs=True),
        Launch((), command=Command("recipe.one.main", (), "run.sh", 2), unread=("env.sh (line 1)",)),
    ],
)
def test_environment_that_may_bring_the_package(tmp_path: Path, launch: Launch) -> None:
    write(tmp_path, {"verl/__init__.py": ""})
    assert not _lacks(launch, tmp_path)


def test_editable_install_below_a_package_of_others(tmp_path: Path) -> None:
    """A package without `__init__.py` lies in the environment, and a hook serves another part of it."""
    write(tmp_path, {"verl/__init__.py": "", "recipe/two/main.py": ""})
    launch = Launch((), command=Command("recipe.one.main", (), "run.sh", 2))
    assert _lacks(launch, tmp_path)
    write(tmp_path, {"__editable___mine_finder.py": "MAPPING = {'recipe.one': '/home/me/recipe/one'}"})
    assert not _lacks(launch, tmp_path)


@pytest.mark.parametrize("module", ["train", "train.one"])
def test_module_above_its_script(tmp_path: Path, module: str) -> None:
    """The script enters no folder: it may be started at the top of its repository."""
    write(tmp_path, {"verl/__init__.py": "", "repo/train.py": "", "elsewhere/x": ""})
    script = str(tmp_path / "repo/jobs/run.sh")
    command = Command(module, (), script, 2, folder=str(tmp_path / "elsewhere"))
    assert not _lacks(Launch((), command=command), tmp_path, here=tmp_path / "elsewhere")
    assert _lacks(Launch((), command=command), tmp_path, here=tmp_path)


def _lacks(launch: Launch, top: Path, here: Path | None = None) -> bool:
    trees = VerlTrees(Tree(str(top / "verl"), "verl", "0.9.1", "site-packages"), "")
    found = program_module.collect(launch, trees, interpreter(), JobVariables(), Machine(cwd=here or top))
    return isinstance(found, ProgramModule) and found.missing
