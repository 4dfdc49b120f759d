"""The arguments of the installed `ray.init()`, and its smallest object store, read from Ray's sources."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.evaluate import ARITHMETIC, applied
from verl_doctor.toolkit.sources.python.source import dotted, parsed, walk

KEY = "ray_kwargs.ray_init"
"""Where verl keeps the arguments of `ray.init()`, since 0.6.

From `ray_init`, used before, it passed only `num_cpus`.
"""

_FOLDER = "runtime_env.working_dir"
_SMALLEST = "OBJECT_STORE_MINIMUM_MEMORY_BYTES"


@dataclass(frozen=True)
class RayInitArguments:
    """The names, including hidden ones, and where they were read, as "path:line".

    `smallest_store` is in bytes, 0 if unknown.

    `missing_folder` is the `working_dir` of the job's runtime environment if it does not exist. `numbers` are
    the names that are annotated as integers.
    """

    names: tuple[str, ...]
    read_from: str
    smallest_store: int = 0
    missing_folder: str = ""
    numbers: tuple[str, ...] = ()


@collector(kept=True)
def ray_init_arguments(
    libraries: LibraryTrees, configuration: Configuration, machine: Machine
) -> RayInitArguments | Unknown:
    """Read the signature of `init`, and the names that it reads from `**kwargs`."""
    folder = next((Path(tree.folder) for tree in libraries.trees if tree.module == "ray"), None)
    if folder is None:
        return Absent("Ray is not installed in this environment")
    path = folder / "_private" / "worker.py"
    tree = parsed(path)
    nodes = tree.body if isinstance(tree, ast.Module) else []
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name == "init":
            arguments = (*node.args.args, *node.args.kwonlyargs)
            names = [argument.arg for argument in arguments]
            hidden = _taken_out(node, node.args.kwarg.arg) if node.args.kwarg else []
            return RayInitArguments(
                (*names, *hidden),
                f"{path}:{node.lineno}",
                _smallest(folder),
                _missing_folder(configuration, machine),
                tuple(argument.arg for argument in arguments if _is_number(argument.annotation)),
            )
    return Unknown(f"{path} has no function init that can be read")


def _is_number(annotation: ast.expr | None) -> bool:
    """Return whether an annotation is `int` or `Optional[int]`."""
    match annotation:
        case ast.Subscript(value=outer, slice=inner):
            return dotted(outer).rpartition(".")[2] == "Optional" and _is_number(inner)
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _is_number(left)
    return dotted(annotation) == "int"


def _missing_folder(configuration: Configuration, machine: Machine) -> str:
    """Return the folder named for all nodes if it is missing here.

    A relative path depends on where the job starts.
    """
    named = configuration.get(f"{KEY}.{_FOLDER}")
    path = machine.expanded(named) if isinstance(named, str) and "://" not in named else ""
    return (
        path
        if path.startswith("/") and not path.endswith((".zip", ".jar")) and not os.path.isdir(path)
        else ""
    )


def _taken_out(node: ast.FunctionDef, kwargs: str) -> list[str]:
    """Return the names that are popped from, or looked up in, `**kwargs`."""
    return [
        part.args[0].value
        for part in walk(node)
        if isinstance(part, ast.Call)
        and dotted(part.func) in (f"{kwargs}.pop", f"{kwargs}.get")
        and part.args
        and isinstance(part.args[0], ast.Constant)
        and isinstance(part.args[0].value, str)
    ]


def _smallest(folder: Path) -> int:
    path = folder / "_private" / "ray_constants.py"
    tree = parsed(path)
    for node in tree.body if isinstance(tree, ast.Module) else []:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == _SMALLEST:
                return _number(value)
    return 0


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            found = applied(ARITHMETIC[type(op)], _number(left), _number(right))
            return int(found) if isinstance(found, (int, float)) else 0
    return 0
