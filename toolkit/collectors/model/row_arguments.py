"""The names that verl's agent loop keeps to itself.

They are arguments that it passes beside a row's columns, and tensors that columns replace.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.roles import trains
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import dotted, parsed, walk

# The worker of the newer trainers, and the class below it.
_WORKER = "trainer/ppo/v1/agent_loop_tq.py"
_BASE = "experimental/agent_loop/agent_loop.py"
_CLASSES = ("AgentLoopWorkerTQ", "AgentLoopWorker")
_ROWS = frozenset({"prompt", "kwargs"})  # the names of a row's columns there
_OWN = ("data.custom_cls.path", "actor_rollout_ref.rollout.agent.agent_loop_manager_class")
_PROGRAM = "/verl/trainer/main_ppo.py"
_Method = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class RowArguments:
    """Places in verl's sources by the name of a column.

    They are where it is `passed` a second time, and where it is `replaced` by a row's value.
    """

    passed: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)


@collector(kept=True)
def row_arguments(verl: VerlTrees, configuration: Configuration) -> RowArguments | Unknown:
    """Read the calls of the agent loop's worker that unpack the columns of a row."""
    if not configuration.program.endswith(_PROGRAM) or not trains(configuration):
        return Absent("the job starts no trainer of verl's with agent loops")
    if configuration.get("trainer.use_v1") is not True:
        return Absent("the job uses an older trainer")
    if any(configuration.get(key) not in (None, MISSING) for key in _OWN):
        return Absent("the job has a data set or a manager of agent loops of its own")
    methods: dict[str, tuple[Path, _Method]] = {}
    for name, owner in zip((_BASE, _WORKER), reversed(_CLASSES), strict=True):
        path = Path(verl.imported.folder, name)
        tree = parsed(path) if os.path.isfile(path) else None
        if tree is None:
            return Absent(f"this verl has no {name}")
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == owner:
                parts = (
                    part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))
                )
                methods |= {part.name: (path, part) for part in parts}
    parts_of_worker = {name: part for name, (_, part) in methods.items()}
    passed: dict[str, str] = {}
    replaced: dict[str, str] = {}
    for path, method in methods.values():
        for call in walk(method):
            if isinstance(call, ast.Call):
                for name in _beside_rows(call, parts_of_worker):
                    passed.setdefault(name, f"{path}:{call.lineno}")
        replaced |= {name: f"{path}:{line}" for name, line in _replaced(method)}
    removed = {name for _, method in methods.values() for name in _removed(method)}
    return RowArguments({name: place for name, place in passed.items() if name not in removed}, replaced)


def _beside_rows(call: ast.Call, methods: Mapping[str, _Method]) -> Iterator[str]:
    """Yield the names of the arguments that a call passes beside the columns of a row, which it unpacks."""
    if not any(word.arg is None and dotted(word.value) in _ROWS for word in call.keywords):
        return
    yield from (word.arg for word in call.keywords if word.arg)
    before, _, name = dotted(call.func).rpartition(".")
    if before == "self" and name in methods:
        spec = methods[name].args
        yield from (argument.arg for argument in spec.args[: 1 + len(call.args)])


def _removed(method: _Method) -> Iterator[str]:
    """Yield the names that a method takes out of the rows before it passes them on."""
    for node in walk(method):
        match node:
            case ast.Call(func=ast.Attribute(attr="pop"), args=[ast.Constant(value=str(name)), *_]):
                yield name


def _replaced(method: _Method) -> Iterator[tuple[str, int]]:
    """Yield the entries whose size is read from an already updated dictionary, with the line.

    A row's columns have updated that dictionary before.
    """
    updated = {
        dotted(node.func.value): node.lineno
        for node in walk(method)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "update"
        and [dotted(argument) for argument in node.args] == ["kwargs"]
    }
    stored = {
        (dotted(part.value), name) for part, name in _entries(method) if isinstance(part.ctx, ast.Store)
    }
    for node in walk(method):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Subscript() as part, attr="size")):
                for entry, name in _entries(part):
                    owner = dotted(entry.value)
                    if updated.get(owner, node.lineno) < node.lineno and (owner, name) not in stored:
                        yield name, node.lineno


def _entries(node: ast.AST) -> Iterator[tuple[ast.Subscript, str]]:
    for part in chain([node], walk(node)):
        match part:
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                yield part, name
