"""Members of classes: those of the metaclass count."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.miniatures.source_trees import write

from verl_doctor.toolkit.sources.python.answers import Missing, Present, Unresolved
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import SourceTree

# As torch.distributed has it: `group.WORLD` is a property of the metaclass.
GROUPS = """
from abc import ABCMeta
from enum import Enum, EnumMeta
from elsewhere import Meta

class WorldMeta(type):
    @property
    def WORLD(cls): ...

class Serving(type):
    def __getattr__(cls, name): ...

class Listed(EnumMeta):
    def __getitem__(cls, name): ...

class group(metaclass=WorldMeta): ...
class Extended(group): ...
class Abstract(metaclass=ABCMeta): ...
class Open(metaclass=Serving): ...
class Foreign(metaclass=Meta): ...
class Made(metaclass=made()): ...
class Colour(Enum, metaclass=Listed):
    RED = 1
"""


@pytest.mark.parametrize(
    ("owner", "name", "kind"),
    [
        ("group", "WORLD", Present),
        ("Extended", "WORLD", Present),
        ("group", "WORLDS", Missing),
        ("Abstract", "register", Present),
        ("Abstract", "WORLD", Missing),
        ("Open", "WORLD", Unresolved),
        ("Foreign", "WORLD", Unresolved),
        ("Made", "WORLD", Unresolved),
        ("Colour", "RED", Present),
        ("Colour", "BLUE", Missing),
    ],
)
def test_a_class_has_the_members_of_its_metaclass(
    tmp_path: Path, owner: str, name: str, kind: type[object]
) -> None:
    sources = Sources([SourceTree(write(tmp_path / "library", {"groups.py": GROUPS}), "library")])
    found = sources.import_name("library.groups", owner)
    assert isinstance(found, Present)
    assert isinstance(sources.member(found.definition, name), kind)
