"""Classes of verl that start rollout servers or train with them, and whether the servers are shut down.

From 0.4.0 to 0.5.0 a manager holds the servers in `async_llm_servers`, and the trainer holds the manager in
`async_rollout_manager`. Projects built on verl keep copies of these two files in a folder `verl` of their own
package, without the rest of verl.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import launch_values, text_of
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.source import Unreadable, parse, read, walk

SERVERS = "async_llm_servers"
WORKERS = "agent_loop_workers"
MANAGER = "async_rollout_manager"
END = "cleanup"
TRAIN = "fit"
_MODE = "actor_rollout_ref.rollout.mode"
# Where released verl and its copies have such classes. Files that do not mention them are not parsed.
_PLACES = ("trainer/*.py", "trainer/ppo/*.py", "workers/rollout/*.py", "experimental/agent_loop/*.py")
# The same in a package of the current folder that contains a folder `verl`.
_PLACES_OF_DERIVED = ("verl/*.py", "trainer/*.py")


@dataclass(frozen=True)
class ServingClass:
    """A class that holds servers, or trains with them: `line` is the line of the class, or of its `fit`.

    `ends`: a manager has a method that shuts them down, or code in the trainer's file calls it.
    """

    path: str
    line: int
    name: str
    ends: bool


@dataclass(frozen=True)
class RolloutServers:
    """The managers and trainers of the imported tree, and of packages built on verl in the current folder.

    `holders` keep a manager and leave the training to other classes: they need a `cleanup` method. `mode` is
    the job's `rollout.mode`, "" if no job is known; only an "async" one has servers.
    """

    managers: tuple[ServingClass, ...]
    trainers: tuple[ServingClass, ...]
    mode: str = ""
    holders: tuple[ServingClass, ...] = ()


@collector(kept=True)
def rollout_servers(
    trees: VerlTrees, launch: Launch | Unknown, configuration: Configuration | Unknown, machine: Machine
) -> RolloutServers | Unknown:
    """Find the classes by what they do, not by their names."""
    folder = Path(trees.imported.folder)
    managers: list[ServingClass] = []
    trainers: list[ServingClass] = []
    holders: list[ServingClass] = []
    for paths in (_files(folder), *_files_of_derived(machine.cwd)):
        parts = _parts(paths)
        if isinstance(parts, Unknown):
            return parts
        if parts.managers:  # a package without a manager trains with another tree's
            managers += parts.managers
            trainers += parts.trainers
            holders += parts.holders
    if not managers:
        return Absent(f"no class of {folder} keeps servers as {SERVERS}")
    mode = text_of(launch_values(launch, configuration), _MODE)
    return RolloutServers(_once(managers), _once(trainers), mode, _once(holders))


def _parts(paths: Iterable[Path]) -> RolloutServers | Unknown:
    """Return the classes of one tree."""
    managers: list[ServingClass] = []
    trainers: list[ServingClass] = []
    holders: list[ServingClass] = []
    for path in paths:
        source = read(path)
        if isinstance(source, Unreadable):
            return Unknown(source.reason)
        if SERVERS.encode() not in source and MANAGER.encode() not in source:
            continue
        tree = parse(source, path)
        if isinstance(tree, Unreadable):
            return Unknown(tree.reason)
        ends = END.encode() in source and _calls_cleanup(tree)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                managers += _manager(node, str(path))
                trainers += _trainer(node, str(path), ends)
                holders += _holder(node, str(path))
    return RolloutServers(tuple(managers), tuple(trainers), "", tuple(holders))


def _once(parts: list[ServingClass]) -> tuple[ServingClass, ...]:
    return tuple(dict.fromkeys(parts))


def method_of(node: ast.ClassDef, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """A method defined by the class itself."""
    for part in node.body:
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name == name:
            return part
    return None


def _files(folder: Path) -> Iterator[Path]:
    for pattern in _PLACES:
        yield from sorted(folder.glob(pattern))


def _files_of_derived(folder: Path) -> Iterator[list[Path]]:
    """Yield the sources of each package in a folder that keeps a part of verl in a folder `verl`."""
    for inner in sorted(folder.glob("*/verl")):
        package = inner.parent
        if package.name.isidentifier() and package.name != "verl":
            yield [path for pattern in _PLACES_OF_DERIVED for path in sorted(package.glob(pattern))]


def _manager(node: ast.ClassDef, path: str) -> Iterator[ServingClass]:
    """A class that creates its servers and puts them to sleep."""
    if method_of(node, "sleep") and any(
        isinstance(part, ast.Attribute) and part.attr == SERVERS and isinstance(part.ctx, ast.Store)
        for part in walk(node)
    ):
        yield ServingClass(path, node.lineno, node.name, method_of(node, END) is not None)


def _trainer(node: ast.ClassDef, path: str, requested: bool) -> Iterator[ServingClass]:
    """A class whose `fit` uses the manager."""
    fit = method_of(node, TRAIN)
    if fit and any(isinstance(part, ast.Attribute) and part.attr == MANAGER for part in walk(fit)):
        yield ServingClass(path, fit.lineno, node.name, requested)


def _holder(node: ast.ClassDef, path: str) -> Iterator[ServingClass]:
    """A class that creates a manager and has no `fit`."""
    keeps = any(
        isinstance(part, ast.Attribute) and part.attr == MANAGER and isinstance(part.ctx, ast.Store)
        for part in walk(node)
    )
    if keeps and not method_of(node, TRAIN):
        yield ServingClass(path, node.lineno, node.name, method_of(node, END) is not None)


def _calls_cleanup(tree: ast.Module) -> bool:
    """Return whether a function of the module mentions both the manager and its `cleanup`.

    They may be mentioned as attributes or strings.
    """
    functions = (node for node in walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return any({MANAGER, END} <= _words(function) for function in functions)


def _words(node: ast.AST) -> set[str]:
    return {
        word
        for part in walk(node)
        if isinstance(word := getattr(part, "attr", getattr(part, "value", None)), str)
    }
