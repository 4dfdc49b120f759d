"""The configuration of the job, from a launch script and a verl tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.configuration.config_value_of_wrong_type import config_value_of_wrong_type
from verl_doctor.toolkit.collectors.configuration.configuration import UNDETERMINED, Configuration
from verl_doctor.toolkit.collectors.configuration.configuration_collector import configuration
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

TREE = {
    "trainer/main_sft.py": """\
@hydra.main(config_path="config", config_name="sft", version_base=None)
def main(config):
    if config.trainer.test_freq == "after_each_epoch":
        print("now and then")
""",
    "trainer/config/sft.yaml": "defaults: [engine: fsdp, _self_]\ntrainer: {test_freq: -1, save_freq: -1}\n",
    "trainer/config/engine/fsdp.yaml": "strategy: fsdp\n",
    "trainer/config/engine/megatron.yaml": "strategy: megatron\n",
}


def _configuration(
    folder: Path, *words: str, program: str = "-m verl.trainer.main_sft", before: str = ""
) -> Configuration:
    for name, text in TREE.items():
        file = folder / "verl" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    script = folder / "run.sh"
    script.write_text(f"{before}python3 {program} {' '.join(words)}\n")
    machine = Machine(cwd=folder)
    read = launch.collect(
        Target(python=folder / "python", chosen_by="--python", files=(script,), words=()), machine
    )
    trees = VerlTrees(Tree(str(folder / "verl"), "verl", "0.7.0", "--verl"), "verl")
    found = configuration.collect(read, trees, machine)
    assert isinstance(found, Configuration)
    return found


def test_config_group_choice_is_not_a_value_of_its_section(tmp_path: Path) -> None:
    found = _configuration(tmp_path, "engine=megatron")
    assert [word.fate for word in found.overrides] == ["chosen"]
    assert found.get("engine.strategy") == "megatron"
    assert not list(config_value_of_wrong_type.judge(found, Unknown("not asked"), Unknown("not asked")))


@pytest.mark.parametrize(
    ("word", "wrong"),
    [
        ("trainer.test_freq=after_each_epoch", False),
        ("trainer.save_freq=after_each_epoch", True),
        ("trainer.test_freq=then", True),
    ],
)
def test_text_that_verl_compares_with_a_number_is_reported(word: str, wrong: bool, tmp_path: Path) -> None:
    found = _configuration(tmp_path, word)
    assert (
        bool(list(config_value_of_wrong_type.judge(found, Unknown("not asked"), Unknown("not asked"))))
        is wrong
    )


def test_missing_config_folder_is_reported(tmp_path: Path) -> None:
    found = _configuration(tmp_path, f"--config-path={tmp_path}/recipe/config", "--config-name=mine")
    assert found.refused
    assert found.missing_folder == f"{tmp_path}/recipe/config"
    assert not _configuration(tmp_path, "--config-name=mine").missing_folder


@pytest.mark.parametrize(
    ("defaults", "words", "found_with"),
    [
        ("sft", (), "pkg://verl.trainer.config"),
        ("engine: other", (), ""),
        ("engine: fsdp", (), "pkg://verl.trainer.config"),
        ("sft", ("hydra.searchpath=[]",), ""),
    ],
)
def test_file_of_verl_that_is_not_on_the_search_path(
    tmp_path: Path, defaults: str, words: tuple[str, ...], found_with: str
) -> None:
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "mine.yaml").write_text(
        f"defaults: [{{{defaults}}}, _self_]\n" if ":" in defaults else f"defaults: [{defaults}, _self_]\n"
    )
    options = (f"--config-path={recipe}", "--config-name=mine")
    found = _configuration(tmp_path, *options, *words)
    assert found.refused
    assert found.found_with == found_with
    if found_with:
        assert not _configuration(tmp_path, *options, f"hydra.searchpath=[{found_with}]").refused
    assert _configuration(tmp_path, f"--config-path={recipe}", "--config-name=sft").found_with == ""


def test_keys_defined_only_in_the_users_config_file_are_known(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "mine.yaml").write_text(
        "hydra: {searchpath: [pkg://verl.trainer.config]}\n"
        "defaults: [sft, _self_]\ntrainer: {test_freq: 5, safe_freq: 5}\n"
    )
    found = _configuration(tmp_path, f"--config-path={recipe}", "--config-name=mine")
    assert [key for key in found.added if not key.startswith("hydra")] == ["trainer.safe_freq"]
    assert _configuration(tmp_path).added == ()


def test_folder_added_by_the_command_is_searched_after_the_own_one(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "mine.yaml").write_text("defaults: [sft, _self_]\ntrainer: {test_freq: 5}\n")
    found = _configuration(tmp_path, f"--config-dir={tmp_path}/conf", "--config-name=mine")
    assert not found.refused
    assert found.get("trainer.test_freq") == 5
    assert found.added_folder == f"{tmp_path}/conf"
    assert _configuration(tmp_path).added_folder == ""


def test_searchpath_added_by_the_command_is_searched(tmp_path: Path) -> None:
    added = tmp_path / "mine" / "engine"
    added.mkdir(parents=True)
    (added / "other.yaml").write_text("strategy: other\n")
    found = _configuration(tmp_path, f"hydra.searchpath=[file://{tmp_path}/mine]", "engine=other")
    assert not found.refused
    assert found.get("engine.strategy") == "other"


def test_secrets_in_the_users_config_files_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "trainer: {wandb_key: hunter2, n_token: 4, tags: ['login:hunter2@host'], credentials: {pin: hunter2}}\n"
        "data: {prompt_key: prompt, my_question_key: question}\nhub: 'https://joe:hunter2@hub'\n"
    )
    found = _configuration(tmp_path, f"--config-path={tmp_path}", "--config-name=mine", "trainer.n_token=5")
    assert not found.refused
    assert "hunter2" not in repr(found)
    assert found.get("trainer.n_token") == 5
    assert found.get("data.prompt_key") == "prompt"
    assert found.get("data.my_question_key") == "question"
    assert found.get("trainer.wandb_key") is UNDETERMINED


OWN = {
    "verl's function": "from verl.trainer.main_sft import main\nmain()\n",
    "under another name": "if True:\n    from verl.trainer.main_sft import main as train\n    train()\n",
    "a function of its own": (
        "import hydra\nfrom verl.trainer.main_sft import run\n"
        '@hydra.main(config_path="verl/trainer/config", config_name="sft", version_base=None)\n'
        "def main(config):\n    run(config)\nmain()\n"
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_users_program_is_followed_to_verl(name: str, tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(OWN[name])
    found = _configuration(tmp_path, "trainer.save_freq=5", program="go.py")
    assert (found.get("trainer.save_freq"), found.get("engine.strategy")) == (5, "fsdp")
    assert found.complete


VERLS = "from verl.trainer.main_sft import main\n"


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("", False),
        ("from verl.workers.engine_workers import ActorRolloutRefWorker", False),
        ("from verl.trainer.ppo.ray_trainer import RayPPOTrainer", False),
        ("from my_trainer import RayDanceTrainer", True),
        ("from .workers import DiffusionWorker", True),
        ("from my.data import create_rl_dataset", True),
        ("class MyWorker(ActorRolloutRefWorker): ...", True),
        ("class Tools: ...", False),
    ],
)
def test_program_may_bring_parts_of_its_own(line: str, own: bool, tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(f"{VERLS}{line}\nmain()\n")
    assert _configuration(tmp_path, program="go.py").own_parts is own


def test_program_without_any_part_of_verl_brings_its_own(tmp_path: Path) -> None:
    source = '@hydra.main(config_path="verl/trainer/config", config_name="sft")\ndef main(config):\n    mine.run(config)\n'
    (tmp_path / "go.py").write_text(
        f"import hydra, mine\nfrom verl.utils.device import auto_set_device\n{source}main()\n"
    )
    assert _configuration(tmp_path, "trainer.save_freq=5", program="go.py").own_parts
    assert not _configuration(tmp_path).own_parts


def test_undetermined_word_leaves_defaults_undetermined(tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(OWN[next(iter(OWN))])
    found = _configuration(tmp_path, "trainer.save_freq=5", "$(python3 words.py)", program="go.py")
    assert found.get("trainer.save_freq") == 5
    assert found.default("engine.strategy") == "fsdp"
    assert found.get("engine.strategy") is UNDETERMINED
    assert not found.complete


@pytest.mark.parametrize(
    "line",
    [
        'sys.argv.append("trainer.save_freq=1")',
        "config.trainer.save_freq = 1",
        'cfg["trainer"]["save_freq"] = 1',
        'OmegaConf.update(config, "trainer.save_freq", 1)',
        "mine = OmegaConf.merge(config, {})",
    ],
)
def test_program_that_changes_its_configuration_is_not_judged(line: str, tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(f"from verl.trainer.main_sft import main\n{line}\nmain()\n")
    found = _configuration(tmp_path, program="go.py")
    assert found.why_incomplete == "the program changes the configuration (go.py:2)"


def test_program_that_merges_other_things_leaves_its_configuration(tmp_path: Path) -> None:
    line = "runtime_env = OmegaConf.merge(DEFAULT, given)"
    (tmp_path / "go.py").write_text(f"from verl.trainer.main_sft import main\n{line}\nmain()\n")
    assert _configuration(tmp_path, "trainer.save_freq=5", program="go.py").complete


def test_data_preparation_script_is_not_a_training_job(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").write_text("import argparse\nfrom verl.utils.hdfs_io import copy\n")
    script = tmp_path / "run.sh"
    script.write_text("python3 prepare.py --local_dir data\n")
    target = Target(python=tmp_path / "python", chosen_by="--python", files=(script,), words=())
    found = launch.collect(target, Machine(cwd=tmp_path))
    assert not isinstance(found, Unknown)
    assert found.command is None


def test_users_config_file_is_distinguished_from_those_of_verl() -> None:
    verls = "/env/verl/trainer/config/algorithm.yaml:4"
    mine = Configuration(
        "/env/verl/trainer/main_ppo.py", "/home/me/config", "mine", origins={"a": "mine.yaml:3", "b": verls}
    )
    assert (mine.own_line("a"), mine.own_line("b"), mine.own_line("c")) == (
        ("/home/me/config/mine.yaml", 3),
        None,
        None,
    )
    plain = replace(mine, folder="/env/verl/trainer/config", origins={"a": "ppo_trainer.yaml:3"})
    assert plain.own_line("a") is None
    assert replace(mine, program="/home/me/train.py").own_line("a") is None


def test_variables_named_in_a_value_are_those_of_the_job(tmp_path: Path) -> None:
    words = (
        "+trainer.path='${oc.env:JOB_DATA}/train'",
        "+trainer.other='${trainer.path}/${oc.env:JOB_LACKS_IT,x}'",
        "+trainer.third='${oc.env:JOB_LACKS_IT}'",
        "+trainer.key='${oc.env:WANDB_API_KEY}'",
    )
    before = "export JOB_DATA=/d WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567; "
    found = _configuration(tmp_path, *words, before=before)
    assert found.get("trainer.path") == "/d/train"
    assert found.get("trainer.other") == "/d/train/x"
    assert found.get("trainer.third") is found.get("trainer.key") is UNDETERMINED


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        (0.5, 0.5),
        (True, None),
        ("3", None),
        (float("inf"), None),
        (float("nan"), None),
        (10**400, None),
    ],
)
def test_numbers_with_which_rules_can_calculate(value: object, number: float | None) -> None:
    tree = {"a": value}
    assert Configuration("main.py", "/config", "main", before=tree, after=tree).number("a") == number
