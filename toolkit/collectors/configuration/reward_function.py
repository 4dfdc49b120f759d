"""The job's own reward function: whether its file exists and defines it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.configuration.beside import beside
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.old_reward_keys import OldRewardKeys
from verl_doctor.toolkit.collectors.configuration.own_code import Read, reads
from verl_doctor.toolkit.collectors.launch.launch import Launch, changes_folder, folder_of, written_by
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.bound import lasting
from verl_doctor.toolkit.sources.python.source import children, parse, parsed, walk

_NEW = "reward.custom_reward_function"
_OLD = "custom_reward_function"
_PACKAGE = "pkg://"
_FILE = "file://"
# A module that uses these may have names that none of its statements bind.
_MAKES_NAMES = frozenset({"exec", "globals", "vars", "locals", "setattr", "__getattr__", "__dict__"})

_RUN_AS_A_PROGRAM = ("__name__ == '__main__'", "'__main__' == __name__")

State = Literal["there", "missing", "unexpanded", "unseen"]


@dataclass(frozen=True)
class RewardFunction:
    """A reward function: `key` is the section, `path` the file as it is written, `name` the function.

    `state`: the file is "there" or "missing", "unexpanded" if it would exist if verl expanded `~`, and
    "unseen" if the job may run in another folder that has it, or on another machine. `defined` is None if
    reading cannot decide; `names` are the functions of the file, `reads` is what it certainly reads of its
    parameters. `expanded` is the path with the folder that `~` stands for, "" without a `~`. `beside` is the
    file that a missing one may mean: of the same name beside a script, or of a similar name.
    """

    key: str
    path: str
    name: str
    state: State
    defined: bool | None = None
    names: tuple[str, ...] = ()
    reads: tuple[Read, ...] = ()
    expanded: str = ""
    beside: str = ""


@collector(kept=True)
def reward_function(
    configuration: Configuration,
    old_keys: OldRewardKeys | Unknown,
    launch: Launch,
    machine: Machine,
) -> RewardFunction | Unknown:
    """Look up the file as verl does: relative to the current folder, without expanding `~`."""
    key = _section(configuration, old_keys)
    path, name = configuration.get(f"{key}.path"), configuration.get(f"{key}.name")
    if path in (None, "", MISSING):
        return Absent("the job uses verl's reward functions")
    if not isinstance(path, str) or not isinstance(name, str):
        return Unknown(f"the value of {key}.path or {key}.name cannot be determined")
    if path.startswith(_PACKAGE):
        return Absent(f"{path} is a module, not a file")
    file = folder_of(launch, machine.cwd) / path.removeprefix(_FILE)
    written = written_by(launch)
    if os.path.normpath(file) in written or os.path.isfile(file):
        tree = _tree(file, written)
        if tree is None:
            return RewardFunction(key, path, name, "there")
        found, functions = _names(tree)
        known = None if found is None else name in found
        return RewardFunction(
            key, path, name, "there", known, functions, tuple(reads(lasting(tree).get(name)))
        )
    expanded = str(machine.expanded(path)) if path.startswith("~") else ""
    if expanded and os.path.exists(expanded):
        return RewardFunction(key, path, name, "unexpanded", expanded=expanded)
    if os.path.exists(file) or (not Path(path).is_absolute() and changes_folder(launch)):
        return RewardFunction(key, path, name, "there")
    may_start_above = not Path(path).is_absolute() and folder_of(launch, machine.cwd) == machine.cwd
    scripts = (Path(script).parent for script, kind in launch.files if kind != "command line")
    meant = beside(Path(os.path.normpath(file)), (machine.cwd, *scripts))
    elsewhere = launch.is_elsewhere or (may_start_above and _is_above(path, launch, machine.cwd))
    return RewardFunction(
        key,
        path,
        name,
        "unseen" if elsewhere else "missing",
        expanded=expanded,
        beside="" if expanded else meant,
    )


def _is_above(path: str, launch: Launch, here: Path) -> bool:
    """Return whether a folder above this one or a script has the file, as the job may be started there."""
    starts = {here, *(Path(script).parent for script, kind in launch.files if kind != "command line")}
    return any(os.path.exists(folder / path) for start in starts for folder in (start, *start.parents))


def _tree(file: Path, written: Mapping[str, str | None]) -> ast.Module | None:
    """Return the syntax tree of a file, or of what the script writes there; None if unknown or not Python."""
    if os.path.normpath(file) not in written:
        return parsed(file)
    source = parse((written[os.path.normpath(file)] or "(").encode(), file)
    return source if isinstance(source, ast.Module) else None


def _section(configuration: Configuration, old_keys: OldRewardKeys | Unknown) -> str:
    """Return the section that verl reads: an old one if verl moves its values and the new one is empty."""
    if not configuration.has(_NEW):
        return _OLD
    moved = isinstance(old_keys, OldRewardKeys) and old_keys.moved_by
    old = (
        moved
        and configuration.get(f"{_NEW}.path") in (None, "")
        and configuration.get(f"{_OLD}.path") not in (None, "", MISSING)
    )
    return _OLD if old else _NEW


def module_names(tree: ast.Module) -> frozenset[str] | None:
    """Return all names of a module; None if they cannot be determined."""
    return _names(tree)[0]


def _names(tree: ast.Module) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    """Return all names of a module, None if they cannot be determined, and its functions and classes."""
    functions = tuple(
        node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    words = {
        word
        for node in walk(tree)
        if not _is_of_an_object(node)
        for word in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "name", ""))
    }
    names = set(_given(tree))
    return (None if "*" in names or words & _MAKES_NAMES else frozenset(names)), functions


def _is_of_an_object(node: ast.AST) -> bool:
    """Return whether this is an attribute of the object in a method, which binds no name in the module."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def _given(tree: ast.Module) -> Iterator[str]:
    """Yield names bound at any depth when a module is imported, and those a function declares `global`."""
    waiting: list[ast.AST] = [tree]
    for node in waiting:
        match node:
            case ast.If(test=test, orelse=orelse) if ast.unparse(test) in _RUN_AS_A_PROGRAM:
                waiting += orelse
                continue
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
                yield from (
                    name for part in walk(node) if isinstance(part, ast.Global) for name in part.names
                )
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name.partition(".")[0]) for alias in aliases)
        waiting += children(node)
