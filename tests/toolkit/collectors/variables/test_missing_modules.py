"""Modules that a job imports by name, and that nothing on its path has."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.environments import interpreter

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.missing_modules import MissingModules, missing_modules
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine

EXTERNAL = "actor_rollout_ref.model.external_lib"
REWARD = """
import json
import installed
from beside import x
from gone.inner import y
try:
    import optional
except ImportError:
    optional = None

def f():
    import late
    if installed.x:
        return 0
    import later
"""


DATASET = """
import verl.utils.rl_dataset
from verl.utils import rl_dataset, gone
from verl.utils.rl_dataset import RLHFDataset, RLHFDatset
from verl.made import anything
from verl.tools.search_tool import SearchTool, Result
"""


@pytest.mark.parametrize(
    ("words", "path", "missing"),
    [
        ([f"+{EXTERNAL}=installed.inner"], "", []),
        ([f"+{EXTERNAL}=whole.inner"], "", []),
        ([f"+{EXTERNAL}=whole.other"], "", ["whole.other"]),
        ([f"+{EXTERNAL}=mine"], "", ["mine"]),
        ([f"+{EXTERNAL}=mine"], "lib", []),
        ([f"+{EXTERNAL}=[beside,other]"], "", ["other"]),
        ([f"+{EXTERNAL}=edited"], "", []),
        (["+custom_reward_function.path=reward.py"], "", ["gone"]),
        (["+custom_reward_function.path=reward.py", "+custom_reward_function.name=f"], "", ["gone", "late"]),
        (["+custom_reward_function.path=absent.py"], "", []),
        ([], "", []),
    ],
)
def test_missing_modules_are_reported(
    tmp_path: Path, words: list[str], path: str, missing: list[str]
) -> None:
    job, site = tmp_path / "job", tmp_path / "site"
    for folder in (job / "lib", site / "installed"):
        folder.mkdir(parents=True)
    (site / "whole").mkdir()
    for name in ("__init__.py", "inner.cpython-311-x86_64-linux-gnu.so"):
        (site / "whole" / name).touch()
    (job / "beside.py").touch()
    (job / "lib" / "mine.py").touch()
    (job / "reward.py").write_text(REWARD)
    (site / "__editable___it_finder.py").write_text("MAPPING = {'edited': '/src/edited'}")
    launch = Launch((), command=Command("verl.trainer.main_ppo", (), "run.sh", 2, folder=str(job)))
    job_variables = JobVariables({"PYTHONPATH": path} if path else {})
    found = missing_modules.collect(
        configured(*words)[0],
        launch,
        interpreter(site),
        job_variables,
        Machine(environ={}, cwd=tmp_path),
        Absent(""),
    )
    assert isinstance(found, MissingModules)
    assert [module.name for module in found.modules] == missing


def test_modules_that_a_variable_has_verl_import(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    launch = Launch((), command=Command("verl.trainer.main_ppo", (), "run.sh", 2, folder=str(tmp_path)))
    found = missing_modules.collect(
        configured()[0],
        launch,
        interpreter(tmp_path / "site"),
        JobVariables({"VERL_USE_EXTERNAL_MODULES": "mine,gone.patches"}),
        Machine(environ={}, cwd=tmp_path),
        Absent(""),
    )
    assert isinstance(found, MissingModules)
    assert [(module.name, module.phase) for module in found.modules] == [("gone", "import")]


@pytest.mark.parametrize(
    ("value", "source", "missing"),
    [
        ("True", 'os.getenv("VERL_USE_MODELSCOPE", "False")', ["modelscope"]),
        ("False", 'os.getenv("VERL_USE_MODELSCOPE", "False")', []),
        ("True", "", []),
    ],
)
def test_hub_whose_package_is_missing(tmp_path: Path, value: str, source: str, missing: list[str]) -> None:
    verl = tmp_path / "verl"
    verl.mkdir()
    (verl / "__init__.py").write_text(source)
    found = missing_modules.collect(
        configured()[0],
        Launch((), command=Command("verl.trainer.main_ppo", (), "run.sh", 2, folder=str(tmp_path))),
        interpreter(tmp_path / "site"),
        JobVariables({"VERL_USE_MODELSCOPE": value}),
        Machine(environ={}, cwd=tmp_path),
        VerlTrees(Tree(str(verl), "verl", "0.9.1", "site-packages"), "it was named"),
    )
    assert isinstance(found, MissingModules)
    assert [module.name for module in found.modules] == missing


def test_names_missing_from_the_installed_verl_are_reported(tmp_path: Path) -> None:
    site, job = tmp_path / "site", tmp_path / "job"
    for name, text in {
        "verl/__init__.py": "from .protocol import *",
        "verl/utils/__init__.py": "",
        "verl/utils/rl_dataset.py": "class RLHFDataset:\n    def f(self):\n        return self.__dict__\n",
        "verl/made.py": "def __getattr__(name): ...",
        "verl/tools/base_tool.py": "",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    job.mkdir()
    (job / "mine.py").write_text(DATASET)
    words = ("+data.custom_cls.path=mine.py", f"+{EXTERNAL}=verl.tools.base_tool")
    found = missing_modules.collect(
        configured(*words)[0],
        Launch((), command=Command("verl.trainer.main_ppo", (), "run.sh", 2, folder=str(job))),
        interpreter(site),
        JobVariables({}),
        Machine(environ={}, cwd=tmp_path),
        VerlTrees(Tree(str(site / "verl"), "verl", "0.9.1", "site-packages"), "it was named"),
    )
    assert isinstance(found, MissingModules)
    assert [(module.name, module.package, module.near) for module in found.modules] == [
        ("verl.utils.gone", "verl", ""),
        ("verl.utils.rl_dataset.RLHFDatset", "verl", "RLHFDataset"),
        ("verl.tools.search_tool", "verl", ""),
    ]


HELPER = "import sys\nsys.path.append('/elsewhere')\n"


@pytest.mark.parametrize(
    ("source", "words", "made", "missing"),
    [
        ("import gone\n", [], (), ["gone"]),
        ("import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport gone\n", [], (), []),
        ("import gone\nimport sys\nsys.path.insert(0, '/x')\nimport other\n", [], (), ["gone"]),
        ("import os\nos.system('pip install gone')\nimport gone\n", [], (), []),
        ("import paths\nimport gone\n", [], (), []),
        ("import plain\nimport gone\n", [], (), ["gone"]),
        ("def f():\n    import sys\n    sys.path.append('/x')\n    import gone\n", [], (), []),
        ("def f():\n    import gone\n", [], (), ["gone"]),
        ("import gone\n", ["+ray_kwargs.ray_init.runtime_env.pip=[gone]"], (), []),
        ("import gone\n", ["+ray_kwargs.ray_init.runtime_env.env_vars.A=1"], (), ["gone"]),
        ("import gone\n", [], ("gone.py",), []),
        ("import packed\n", [], (), []),
    ],
)
def test_module_that_may_become_importable_is_not_missing(
    tmp_path: Path, source: str, words: list[str], made: tuple[str, ...], missing: list[str]
) -> None:
    (tmp_path / "reward.py").write_text(source)
    (tmp_path / "paths.py").write_text(HELPER)
    (tmp_path / "plain.py").write_text("")
    site = tmp_path / "site"
    site.mkdir()
    archive = tmp_path / "archive.zip"
    if "packed" in source:
        archive.touch()
    command = Command("verl.trainer.main_ppo", (), "run.sh", 2, folder=str(tmp_path))
    found = missing_modules.collect(
        configured("+custom_reward_function.path=reward.py", "+custom_reward_function.name=f", *words)[0],
        Launch((), command=command, made=tuple(str(tmp_path / name) for name in made)),
        interpreter(site),
        JobVariables({"PYTHONPATH": str(archive)}),
        Machine(environ={}, cwd=tmp_path),
        Absent(""),
    )
    assert isinstance(found, MissingModules)
    assert [module.name for module in found.modules] == missing
