"""Which appended keys verl's classes take: read from the sources of a small tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.miniatures import source_trees

from verl_doctor.toolkit.collectors.configuration.config_classes import ConfigClasses
from verl_doctor.toolkit.collectors.configuration.config_classes_collector import config_classes
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Word

CLASSES = """
    from dataclasses import dataclass, field
    @dataclass
    class Base:
        inherited: int = 0
    @dataclass
    class Actor(Base):
        own: int = 0
        inner: dict = field(default_factory=dict)
    class Plain:
        pass
    def start(config):
        omega_conf_to_dataclass(config.actor)
        omega_conf_to_dataclass(config.plain)
    """
TREE = {
    "actor": {"_target_": "verl.config.Actor", "own": 1, "inner": {}},
    "plain": {"_target_": "verl.config.Plain"},
    "other": {"_target_": "elsewhere.Thing"},
    "unmade": {"_target_": "verl.config.Actor"},
    "free": {},
}


@pytest.mark.parametrize(
    ("word", "refused"),
    [
        ("+actor.mine=1", ["mine"]),
        ("++actor.mine.deep=1", ["mine"]),
        ("+actor.inherited=1", []),
        ("+actor.inner.x=1", []),
        ("++actor.own=2", []),
        ("+plain.mine=1", []),
        ("+other.mine=1", []),
        ("+free.mine=1", []),
        ("+unmade.mine=1", []),
        ("actor.own=1", []),
    ],
)
def test_appended_keys(word: str, refused: list[str], tmp_path: Path) -> None:
    folder = source_trees.write(tmp_path / "verl", {"config.py": CLASSES})
    there = with_overrides(Configuration("", "", "main", before=TREE), [Word(word, "/run.sh", 1)])
    trees = VerlTrees(Tree(str(folder), "verl", "0.6.1", "--verl"), "named")
    found = config_classes.collect(replace(there), trees)
    assert isinstance(found, ConfigClasses)
    assert [refusal.name for refusal in found.refused] == refused


@pytest.mark.parametrize(
    ("strategy", "chosen", "refused"),
    [
        ("fsdp", "auto", []),
        ("fsdp", "disable", ["mine"]),
        ("veomni", "auto", ["mine"]),
        ("fsdp", None, ["mine"]),
    ],
)
def test_workers_that_the_job_does_not_use_make_no_objects(
    strategy: str, chosen: str | None, refused: list[str], tmp_path: Path
) -> None:
    classes, _, makes = CLASSES.partition("    def start")
    files = {"config.py": classes, "workers/engine_workers.py": f"    def start{makes}"}
    folder = source_trees.write(tmp_path / "verl", files)
    tree = {
        **TREE,
        "trainer": {"use_legacy_worker_impl": chosen} if chosen else {},
        "actor_rollout_ref": {"actor": {"strategy": strategy}},
    }
    there = with_overrides(Configuration("", "", "main", before=tree), [Word("+actor.mine=1", "/run.sh", 1)])
    found = config_classes.collect(there, VerlTrees(Tree(str(folder), "verl", "0.7.1", "--verl"), "named"))
    assert isinstance(found, ConfigClasses)
    assert [refusal.name for refusal in found.refused] == refused


def test_keys_of_the_users_config_file_are_accepted(tmp_path: Path) -> None:
    folder = source_trees.write(tmp_path / "verl", {"config.py": CLASSES})
    program = f"{folder}/trainer/main_ppo.py"
    tree = {**TREE, "actor": {**TREE["actor"], "mine": 1, "inherited": 2}}
    added = ("actor.inherited", "actor.mine")
    there = Configuration(
        program, "/home/me", "mine", before=tree, added=added, origins=dict.fromkeys(added, "mine.yaml:3")
    )
    found = config_classes.collect(there, VerlTrees(Tree(str(folder), "verl", "0.6.1", "--verl"), "named"))
    assert isinstance(found, ConfigClasses)
    assert [(refusal.name, refusal.word.path, refusal.word.line) for refusal in found.refused] == [
        ("mine", "/home/me/mine.yaml", 3)
    ]


DECLARED = """
    from dataclasses import dataclass
    from typing import Optional, Union
    @dataclass
    class Limits:
        most: str | float = 2.0
        least: Union[int, str] = 1
        length: Optional[int] = None
        many: Optional[list[int]] = None
        kind: "Kind" = 3
    @dataclass
    class Base:
        limits: Optional[Limits] = None
    @dataclass
    class Algorithm(Base):
        pass
    """


@pytest.mark.parametrize(
    ("word", "types"),
    [
        ("algorithm.limits.most=0.5_2.0", ("str", "float")),
        ("algorithm.limits.most=3.0", None),
        ("algorithm.limits.least=few", ("int", "str")),
        ("algorithm.limits.length=some", ("int", "None")),
        ("algorithm.limits.length=null", None),
        ("algorithm.limits.many=7", ("list", "None")),
        ("algorithm.limits.kind=x", None),
        ("free.x=text", None),
    ],
)
def test_types_declared_by_config_classes_are_checked(
    word: str, types: tuple[str, ...] | None, tmp_path: Path
) -> None:
    folder = source_trees.write(tmp_path / "verl", {"config.py": DECLARED})
    limits = {"most": 2.0, "least": 1, "length": None, "many": None, "kind": 3}
    tree = {"algorithm": {"_target_": "verl.config.Algorithm", "limits": limits}, "free": {"x": 1}}
    there = with_overrides(Configuration("", "", "main", before=tree), [Word(word, "/run.sh", 1)])
    trees = VerlTrees(Tree(str(folder), "verl", "0.6.1", "--verl"), "named")
    found = config_classes.collect(there, trees)
    assert isinstance(found, ConfigClasses)
    assert found.declared.get(word.partition("=")[0]) == types


READERS = {
    "engine/fsdp/engine.py": "class Engine:\n    def f(self):\n        return self.config.reads.size\n",
    "engine/megatron/engine.py": "def f(config):\n    return config.plan.size, config.get('depth')\n",
    "config/engine.py": "class Plan:\n    plan = 1\n    def f(self):\n        return self.plan.size\n",
    "loader.py": "from pack.plan import size\n",
}


@pytest.mark.parametrize(
    ("word", "strategy", "unread"),
    [
        ("engine.plan.size=two", "fsdp2", True),
        ("engine.plan.size=two", "megatron", False),
        ("engine.depth=two", "fsdp", True),
        ("engine.depth=two", "megatron", False),
        ("engine.reads.size=two", "fsdp", False),
    ],
)
def test_keys_read_only_by_another_engine_are_reported(
    word: str, strategy: str, unread: bool, tmp_path: Path
) -> None:
    folder = source_trees.write(tmp_path / "verl", READERS)
    tree = {"engine": {"strategy": strategy, "plan": {"size": 1}, "reads": {"size": 1}, "depth": 1}}
    there = with_overrides(Configuration("", "", "main", before=tree), [Word(word, "/run.sh", 1)])
    found = config_classes.collect(there, VerlTrees(Tree(str(folder), "verl", "0.9.1", "--verl"), "named"))
    assert isinstance(found, ConfigClasses)
    assert found.unread == ((word.partition("=")[0],) if unread else ())


MODEL = "actor_rollout_ref.model"
ALPHA = "config = dict(lora_alpha=self.model_config.lora_alpha)"


@pytest.mark.parametrize(
    ("words", "source", "key"),
    [
        (["trainer.critic_warmup=null"], "if self.config.trainer.critic_warmup <= 1: ...", "trainer.critic_warmup"),
        (["trainer.critic_warmup=0"], "if self.config.trainer.critic_warmup <= 1: ...", ""),
        (["trainer.critic_warmup=null"], "if (self.config.trainer.critic_warmup or 0) <= 1: ...", ""),
        (["trainer.logger=null"], "for backend in default_backend: ...", "trainer.logger"),
        ([f"{MODEL}.lora_alpha=null", f"{MODEL}.lora_rank=8"], ALPHA, f"{MODEL}.lora_alpha"),
        ([f"{MODEL}.lora_alpha=null"], ALPHA, ""),
        ([f"{MODEL}.lora_alpha=null", f"{MODEL}.lora_rank=8", f"+{MODEL}.lora_adapter_path=/saved"], ALPHA, ""),
        ([f"{MODEL}.lora_alpha=null", f"{MODEL}.lora_rank=8", "+actor_rollout_ref.actor.strategy=megatron"], ALPHA, ""),
    ],
)  # fmt: skip
def test_null_for_a_setting_that_verl_uses(words: list[str], source: str, key: str, tmp_path: Path) -> None:
    file = {"config": "workers/engine.py", "for": "utils/tracking.py", "if": "trainer/ppo/step.py"}[
        source.split(maxsplit=1)[0]
    ]
    folder = source_trees.write(tmp_path / "verl", {file: source})
    model = {"lora_rank": 0, "lora_alpha": 16}
    before = {"trainer": {"critic_warmup": 0, "logger": ["console"]}, "actor_rollout_ref": {"model": model}}
    program = str(folder / "trainer/main_ppo.py")
    there = with_overrides(
        Configuration(program, "", "main", before=before), [Word(word, "/run.sh", 1) for word in words]
    )
    trees = VerlTrees(Tree(str(folder), "verl", "0.6.1", "--verl"), "named")
    found = config_classes.collect(there, trees)
    assert isinstance(found, ConfigClasses)
    assert dict(found.calculated) == ({key: f"{folder}/{file}:1"} if key else {})
