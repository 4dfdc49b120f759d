"""The memory that Ray's object store would have on this node, as the installed Ray decides it.

Ray uses the configured size, or a part of the memory that it sees as free, with bounds
(ray/_private/utils.py: resolve_object_store_memory, and ray/_private/services.py:
determine_plasma_store_config; the same from Ray 2.10 to 2.60). The numbers are read from the installed Ray's
ray_constants.py.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.ray_start import RayStarts
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, dotted, parse_file

_LEAST = "OBJECT_STORE_MINIMUM_MEMORY_BYTES"
_LARGE = "REQUIRE_SHM_SIZE_THRESHOLD"
_MOST = "DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"
_PART = "DEFAULT_OBJECT_STORE_MEMORY_PROPORTION"
_OF_SHM = 0.95  # in resolve_object_store_memory itself
_SLOW = "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE"
_KEYS = ("ray_kwargs.ray_init.object_store_memory", "ray_init.object_store_memory")
SEEN_BY_RAY = ("/sys/fs/cgroup", "/sys/fs/cgroup/memory")
"""The only control groups whose memory limit Ray reads (ray/_common/utils.py: get_system_memory)."""

_SIMPLE = {ast.Mult: operator.mul, ast.Pow: operator.pow, ast.Add: operator.add}


@dataclass(frozen=True)
class ObjectStore:
    """The store's `size` in bytes, and what sets it, "" if Ray computes it.

    Ray refuses a store below `least`, one above the `memory` that it sees, and one above `large` that does
    not fit into /dev/shm, unless `slow_allowed`; a smaller one that does not fit is put into its temporary
    folder.
    """

    size: int
    given_by: str
    least: int
    large: int
    memory: int
    slow_allowed: bool = False


@dataclass(frozen=True)
class RayNumbers:
    """Constants of a Ray, by name; those that an environment variable may replace are in `variables`."""

    values: Mapping[str, float]
    variables: Mapping[str, str]


@collector()
def object_store(
    trees: LibraryTrees,
    memory: HostMemory,
    limits: HostLimits,
    shm: SharedMemory,
    variables: Variables,
    starts: RayStarts | Unknown,
    configuration: Configuration | Unknown,
) -> ObjectStore | Unknown:
    """Find the configured size, or else compute it as Ray does."""
    tree = next((tree for tree in trees.trees if tree.module == "ray"), None)
    if tree is None:
        return Absent("Ray is not installed in this environment")
    if limits.raylets:
        return Absent("Ray runs here already, and its object store has its size")
    if memory.total is None or memory.available is None:
        return Unknown("the memory of this machine is unknown")
    path = Path(tree.folder, "_private", "ray_constants.py")
    numbers = remembered(RayNumbers, "", [path], partial(_numbers_in, path))
    if isinstance(numbers, Unknown):
        return numbers
    seen = next(
        (group for group in limits.shell.groups.groups if group.folder in SEEN_BY_RAY and group.memory), None
    )
    total = min(memory.total, seen.memory or memory.total) if seen else memory.total
    free = min(memory.available, int(seen.memory_left)) if seen else memory.available
    given = _given(starts, configuration)
    if isinstance(given, Unknown):
        return given
    numbers_of_ray = {name: _ray_number(name, numbers, variables) for name in numbers.values}
    most = min(numbers_of_ray[_MOST], max(numbers_of_ray[_LARGE], _OF_SHM * shm.free))
    size, given_by = given or (int(min(free * numbers_of_ray[_PART], most)), "")
    return ObjectStore(
        size,
        given_by,
        int(numbers_of_ray[_LEAST]),
        int(numbers_of_ray[_LARGE]),
        total,
        bool(variables.get(_SLOW)),
    )


def _given(
    starts: RayStarts | Unknown, configuration: Configuration | Unknown
) -> tuple[int, str] | Unknown | None:
    """Return the configured size and what sets it, `ray start` first."""
    for start in () if isinstance(starts, Unknown) else starts.commands:
        if text := start.options.get("object-store-memory"):
            where = f"--object-store-memory in {start.path}:{start.line}"
            return (int(text), where) if text.isdigit() else Unknown(f"{where} is unknown: {text}")
    if isinstance(configuration, Unknown):
        return None
    return next(((int(size), key) for key in _KEYS if (size := configuration.number(key))), None)


def _ray_number(name: str, numbers: RayNumbers, variables: Variables) -> float:
    text = variables.get(numbers.variables.get(name, ""))
    return float(text) if text.replace(".", "", 1).isdigit() else numbers.values[name]


def _numbers_in(path: Path) -> RayNumbers | Unknown:
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return Unknown(tree.reason)
    values: dict[str, float] = {}
    variables: dict[str, str] = {}
    for node in tree.body:
        name = dotted(node.targets[0]) if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or name not in (_LEAST, _LARGE, _MOST, _PART):
            continue
        value = node.value
        # env_integer("NAME", default), env_float(...)
        if isinstance(value, ast.Call) and len(value.args) == 2 and isinstance(value.args[0], ast.Constant):
            variables[name] = str(value.args[0].value)
            value = value.args[1]
        number = _number(value)
        if number is not None:
            values[name] = number
    lacking = {_LEAST, _LARGE, _MOST, _PART} - values.keys()
    if lacking:
        return Unknown(f"{path.name} of this Ray does not define {min(lacking)}")
    return RayNumbers(values, variables)


def _number(node: ast.expr) -> float | None:
    """A number, or a product, power or sum of numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _SIMPLE:
        left, right = _number(node.left), _number(node.right)
        if left is not None and right is not None and abs(right) <= 1 << 40:
            with contextlib.suppress(OverflowError):
                return float(_SIMPLE[type(node.op)](left, right))
    return None
