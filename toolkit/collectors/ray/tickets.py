"""How many CPUs verl requests from Ray with each GPU.

CPUs are only a quota in Ray: if too few are left, it waits silently.

verl reserves them with the GPU, `max_colocate_count` of `RayResourcePool` for each: in
verl/trainer/ppo/ray_trainer.py up to 0.6, later in verl/single_controller/ray/base.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, dotted, parse_file

_FILES = ("single_controller/ray/base.py", "trainer/ppo/ray_trainer.py")
_CLASS, _KEYWORD = "RayResourcePool", "max_colocate_count"


@dataclass(frozen=True)
class RayTickets:
    """`of_each_gpu` are the CPUs reserved with one GPU, as read from `read_from`."""

    of_each_gpu: int
    read_from: str


@collector(kept=True)
def ray_tickets(trees: VerlTrees) -> RayTickets | Unknown:
    """Read the number from the call that makes the pools."""
    paths = [Path(trees.imported.folder, name) for name in _FILES]
    return remembered(RayTickets, "", paths, partial(_read, paths))


def _read(paths: list[Path]) -> RayTickets | Unknown:
    for path in paths:
        tree = parse_file(path)
        for number, line in () if isinstance(tree, Unreadable) else _numbers(tree):
            return RayTickets(number, f"{path}:{line}")
    return Unknown("it is unknown how many CPUs this verl requests with each GPU")


def _numbers(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield the argument of each call: a number, or the default of a field of the enclosing class."""
    for scope in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        defaults = {
            f"self.{node.target.id}": node.value
            for node in scope.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        for call in ast.walk(scope):
            if isinstance(call, ast.Call) and dotted(call.func) == _CLASS:
                given = next((keyword.value for keyword in call.keywords if keyword.arg == _KEYWORD), None)
                value = defaults.get(dotted(given), given)
                if isinstance(value, ast.Constant) and isinstance(value.value, int):
                    yield value.value, value.lineno
