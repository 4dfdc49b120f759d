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
    assert [one.name for one in found.refused] == refused
