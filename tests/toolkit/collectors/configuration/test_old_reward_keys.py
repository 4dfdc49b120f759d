from __future__ import annotations

from pathlib import Path

import pytest
from support.miniatures.open_verl import open_verl

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.old_reward_keys import OldRewardKeys, old_reward_keys
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.facts import Absent

OLD = {
    "custom_reward_function.path": "legacy_reward_impl.yaml:2",
    "data.custom_cls": "data/legacy_data.yaml:3",
}
MOVE = "def main(config):\n    migrate_legacy_reward_impl(config)\n"


def seen(folder: Path, origins: dict[str, str], program: str = "", **changed: str) -> object:
    verl = open_verl(folder, **changed)
    trees = VerlTrees(Tree(str(verl), "verl", "0.9.1", "site-packages"), "")
    job = Configuration(program or str(verl / "trainer/main_ppo.py"), "", "ppo", origins=origins)
    return old_reward_keys.collect(configuration=job, trees=trees)


def test_old_keys_that_no_program_moves_are_reported(tmp_path: Path) -> None:
    assert seen(tmp_path, OLD) == OldRewardKeys(("custom_reward_function.path",))


@pytest.mark.parametrize("file", ["trainer/main_ppo.py", "trainer/ppo/ray_trainer.py"])
def test_program_that_moves_old_keys_is_named(tmp_path: Path, file: str) -> None:
    found = seen(tmp_path, OLD, **{file: MOVE})
    assert isinstance(found, OldRewardKeys)
    assert found.moved_by.endswith(file)


def test_program_outside_verl_may_move_old_keys(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(MOVE)
    assert seen(tmp_path, OLD, program=str(own)) == OldRewardKeys(("custom_reward_function.path",), str(own))


def test_verl_without_old_key_names_is_absent(tmp_path: Path) -> None:
    assert isinstance(seen(tmp_path, {"data.train_files": "ppo_trainer.yaml:3"}), Absent)
