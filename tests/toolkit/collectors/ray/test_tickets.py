"""CPUs that go with each GPU, as verl's sources have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.ray.tickets import RayTickets, ray_tickets
from verl_doctor.toolkit.facts import Unknown

WRITTEN = "class Manager:\n    def make(self):\n        return RayResourcePool(use_gpu=True, max_colocate_count=2)\n"
FIELD = "class Manager:\n    count: int = 5\n    def make(self):\n        return RayResourcePool(max_colocate_count=self.count)\n"


def look(folder: Path) -> RayTickets | Unknown:
    return ray_tickets.collect(VerlTrees(Tree(str(folder), "verl", "0", ""), ""))


@pytest.mark.parametrize(
    ("name", "source", "number", "line"),
    [("trainer/ppo/ray_trainer.py", WRITTEN, 2, 3), ("single_controller/ray/base.py", FIELD, 5, 2)],
)
def test_number_is_read_from_a_call_or_a_field_default(
    tmp_path: Path, name: str, source: str, number: int, line: int
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert look(tmp_path) == RayTickets(number, f"{path}:{line}")


@pytest.mark.parametrize(
    "source", ["", "class A(:", WRITTEN.replace("2", "n"), FIELD.replace("self.count", "f()")]
)
def test_undetermined_values(tmp_path: Path, source: str) -> None:
    path = tmp_path / "single_controller/ray/base.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert isinstance(look(tmp_path), Unknown)


@pytest.mark.real
@pytest.mark.parametrize(("version", "number"), [("0.5.0", 1), ("0.6.1", 1), ("0.7.1", 3), ("0.9.1", 3)])
def test_real_releases(wheel_tree: Callable[[str, str], Path], version: str, number: int) -> None:
    found = look(wheel_tree("verl", version) / "verl")
    assert isinstance(found, RayTickets)
    assert found.of_each_gpu == number
