"""Files of the current folder that shadow an installed package, and those that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.shadows import Shadow, Shadows, shadows
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Setting
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

JOB = Launch((), command=Command("verl.trainer.main_ppo", (), "run.sh", 2))


def interpreter(site: Path) -> Interpreter:
    return Interpreter(
        executable="/env/bin/python", version="3.12.0", implementation="CPython", cache_tag="cpython-312",
        environment="venv", prefix="/env", sys_path=(str(site),), site_packages=(str(site),),
        system="Linux", machine="x86_64", glibc="2.35", verl="", vllm="",
    )  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's folder, and a site folder with an installed `datasets`."""
    package = tmp_path / "site" / "datasets"
    package.mkdir(parents=True)
    for name in ("__init__.py", "arrow_dataset.py", "load.py", "splits.py"):
        (package / name).write_text("")
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def look(job: Path, launch: Launch = JOB, path: str = "") -> Shadows | Unknown:
    machine = Machine(environ={}, cwd=job)
    variables = Variables({"PYTHONPATH": path} if path else {})
    found = shadows.collect(machine, launch, interpreter(job.parent / "site"), variables)
    assert isinstance(found, (Shadows, Unknown))
    return found


def modules(found: Shadows | Unknown) -> tuple[Shadow, ...]:
    assert isinstance(found, Shadows)
    return found.modules


def test_folder_and_file_that_shadow_a_package(job: Path) -> None:
    hidden = str(job.parent / "site" / "datasets")
    (job / "datasets").mkdir()
    assert modules(look(job)) == ()  # no __init__.py
    (job / "datasets" / "__init__.py").write_text("")
    assert modules(look(job)) == (Shadow("datasets", str(job / "datasets"), hidden),)
    (job / "datasets" / "__init__.py").unlink()
    (job / "datasets.py").write_text("")
    assert modules(look(job)) == (Shadow("datasets", str(job / "datasets.py"), hidden),)


def test_own_package_verl_without_the_program_shadows_the_installed_one(job: Path) -> None:
    for folder in (job, job.parent / "site"):
        (folder / "verl").mkdir()
        (folder / "verl" / "__init__.py").write_text("")
    (shadow,) = modules(look(job))
    assert (shadow.name, shadow.path) == ("verl", str(job / "verl"))
    (job / "verl" / "trainer").mkdir()
    (job / "verl" / "trainer" / "main_ppo.py").write_text("")
    assert modules(look(job)) == ()  # a checkout
    (job / "lib" / "verl").mkdir(parents=True)
    (job / "lib" / "verl" / "__init__.py").write_text("")
    assert modules(look(job, path="lib")) == ()  # the checkout comes first


def test_folder_on_pythonpath_shadows_a_package(job: Path) -> None:
    (job / "lib").mkdir()
    (job / "lib" / "datasets.py").write_text("")
    assert modules(look(job)) == ()
    hidden = str(job.parent / "site" / "datasets")
    assert modules(look(job, path="lib")) == (Shadow("datasets", str(job / "lib" / "datasets.py"), hidden),)


def test_safe_path_keeps_the_jobs_folder_off_the_path(job: Path) -> None:
    (job / "datasets.py").write_text("")
    given = Setting("PYTHONSAFEPATH", "1", "run.sh", 1)
    assert isinstance(look(job, replace(JOB, settings=(given,))), Absent)
    assert isinstance(look(job, replace(JOB, settings=(replace(given, conditional=True),))), Absent)
    for without in (replace(given, value=""), replace(given, value=None, removed=True)):
        assert modules(look(job, replace(JOB, settings=(given, without)))) != ()


def test_package_that_looks_in_other_folders_too_is_not_a_shadow(job: Path) -> None:
    (job / "datasets").mkdir()
    source = job / "datasets" / "__init__.py"
    source.write_text("# mine\n")
    assert modules(look(job)) != ()
    for text in (
        "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n",
        "__path__.append('/srv/datasets')\n",
    ):
        source.write_text(text)
        assert modules(look(job)) == ()


def test_copy_of_the_package_is_not_a_shadow(job: Path) -> None:
    (job / "datasets").mkdir()
    for name in ("__init__.py", "arrow_dataset.py", "load.py"):
        (job / "datasets" / name).write_text("")
    assert modules(look(job)) == ()


def test_module_of_an_uninstalled_package_is_not_a_shadow(job: Path) -> None:
    (job / "torch.py").write_text("")
    assert modules(look(job)) == ()


def test_undetermined_folder_is_unknown(job: Path) -> None:
    assert isinstance(look(job, replace(JOB, submitted=True)), Unknown)
    assert isinstance(look(job, Launch((), command=Command("train.py", (), "run.sh", 2))), Unknown)
    assert isinstance(look(job, Launch(())), Unknown)


@pytest.mark.parametrize(
    ("script", "takes"),
    [
        ("from datasets import load_dataset\n", False),
        ("import datasets\ndatasets.load_dataset('x')\n", False),
        ("from datasets.load import load\n", False),
        ("from datasets import MINE\n", True),
        ("from datasets.mine import f\n", True),
        ("import datasets as d\nd.MINE\n", True),
        ("from datasets import *\n", True),
        ("from .datasets import MINE\n", False),
    ],
)
def test_importer_of_names_from_the_users_module_is_reported(job: Path, script: str, takes: bool) -> None:
    (job / "datasets").mkdir()
    (job / "datasets" / "__init__.py").write_text("MINE = 1\n")
    (job / "datasets" / "mine.py").write_text("from datasets import MINE\n")
    (job / "reward.py").write_text(script)
    (shadow,) = modules(look(job))
    assert shadow.importer == (str(job / "reward.py") if takes else "")
