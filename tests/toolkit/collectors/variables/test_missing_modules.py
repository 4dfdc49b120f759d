"""Modules that a job imports by name, and that nothing on its path has."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.missing_modules import MissingModules, missing_modules
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


@pytest.mark.parametrize(
    ("words", "path", "missing"),
    [
        ([f"+{EXTERNAL}=installed.inner"], "", []),
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
def test_what_is_missing(tmp_path: Path, words: list[str], path: str, missing: list[str]) -> None:
    job, site = tmp_path / "job", tmp_path / "site"
    for folder in (job / "lib", site / "installed"):
        folder.mkdir(parents=True)
    (job / "beside.py").touch()
    (job / "lib" / "mine.py").touch()
    (job / "reward.py").write_text(REWARD)
    (site / "__editable___it_finder.py").write_text("MAPPING = {'edited': '/src/edited'}")
    interpreter = Interpreter(
        executable="/env/bin/python", version="3.12.0", implementation="CPython", cache_tag="cpython-312",
        environment="venv", prefix="/env", sys_path=(str(site),), site_packages=(str(site),),
        system="Linux", machine="x86_64", glibc="2.35", verl="", vllm="",
    )  # fmt: skip
    launch = Launch((), command=Command("verl.trainer.main_ppo", (), "run.sh", 2, folder=str(job)))
    job_variables = JobVariables({"PYTHONPATH": path} if path else {})
    found = missing_modules.collect(
        configured(*words)[0], launch, interpreter, job_variables, Machine(environ={}, cwd=tmp_path)
    )
    assert isinstance(found, MissingModules)
    assert [module.name for module in found.modules] == missing
