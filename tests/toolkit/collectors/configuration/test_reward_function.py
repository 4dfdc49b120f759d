"""Whether the file of a reward function exists and defines it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.reward_function import RewardFunction, reward_function
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

SECTION = "custom_reward_function"
TREE = {SECTION: {"path": None, "name": "compute_score"}}


def look(folder: Path, path: str, *, launch: Launch | None = None) -> RewardFunction:
    configuration = configured(f"{SECTION}.path={path}", tree=TREE)[0]
    machine = Machine(environ={"HOME": str(folder / "home")}, cwd=folder)
    found = reward_function.collect(configuration, Absent("one name"), launch or Launch(()), machine)
    assert isinstance(found, RewardFunction)
    return found


@pytest.mark.parametrize(
    ("source", "defined"),
    [
        ("def compute_score(): ...", True),
        ("async def compute_score(): ...", True),
        ("compute_score = f", True),
        ("from mine import f as compute_score", True),
        ("try:\n    import compute_score\nexcept ImportError:\n    pass", True),
        ("if True:\n    class compute_score: ...", True),
        ("if __name__ == '__main__':\n    def compute_score(): ...", False),
        ("if '__main__' == __name__:\n    f()\nelse:\n    def compute_score(): ...", True),
        ("class A:\n    def f(self):\n        return self.__dict__", False),
        ("def f():\n    global compute_score\n    compute_score = 1", True),
        ("def f():\n    compute_score = 1", False),
        ("def compute_scores(): ...", False),
        ("class A:\n    def compute_score(self): ...", False),
        ("from mine import *", None),
        ("globals()['compute_score'] = f", None),
        ("def __getattr__(name): ...", None),
        ("def compute_score(:", None),
    ],
)
def test_functions_defined_in_a_file_are_listed(tmp_path: Path, source: str, defined: bool | None) -> None:
    file = tmp_path / "reward.py"
    file.write_text(source + "\n")
    found = look(tmp_path, str(file))
    assert (found.state, found.defined) == ("there", defined)


def test_file_is_resolved_relative_to_the_folder_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "reward.py").write_text("")
    (tmp_path / "near.py").write_text("")
    assert look(tmp_path, "near.py").state == "there"
    assert look(tmp_path, "'~/reward.py'").state == "unexpanded"
    assert look(tmp_path, "far.py").state == "missing"
    assert look(tmp_path, f"{tmp_path}/far.py").state == "missing"
    assert look(tmp_path, f"{tmp_path}/far.py", launch=replace(Launch(()), submitted=True)).state == "unseen"


def test_script_that_changes_the_folder_leaves_relative_paths_unjudged(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("cd /somewhere && python3 -m verl.trainer.main_ppo\n")
    launch = Launch(((str(script), "shell script"),))
    assert look(tmp_path, "far.py", launch=launch).state == "there"


def test_module_path_and_missing_reward_function(tmp_path: Path) -> None:
    machine = Machine(environ={}, cwd=tmp_path)
    for words in ((), (f"{SECTION}.path=pkg://mine.reward",)):
        found = reward_function.collect(
            configured(*words, tree=TREE)[0], Absent("one name"), Launch(()), machine
        )
        assert isinstance(found, Unknown)
