"""The folders that LD_LIBRARY_PATH adds to the loader's search, and those of them that are CUDA's stubs."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, load_text
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse, read, walk

VARIABLE = "LD_LIBRARY_PATH"
# The name that the loader searches for; a stub folder holds only the linker's name, `libcuda.so`.
_LOADERS_NAME = "libcuda.so.1"
_STUBS = re.compile(r"[^\s:;\"'=]*/stubs/?(?=[\s:;\"']|$)")


@dataclass(frozen=True)
class StubFolder:
    """A folder of CUDA's stub libraries on the loader's path.

    `path` and `line` are where a launch file or a module of verl adds it, "" for the shell. `loadable`: it
    holds a `libcuda.so.1`, which would be loaded in place of the driver.
    """

    folder: str
    path: str = ""
    line: int = 0
    loadable: bool = False


@dataclass(frozen=True)
class LibraryPath:
    """The stub folders on the loader's path."""

    stubs: tuple[StubFolder, ...] = ()


@collector(kept=True)
def library_path(
    variables: Variables, launch: Launch | Unknown, rollout: RolloutModule | Unknown
) -> LibraryPath:
    """Check the shell's value, each launch file line that sets it, and verl's modules that start vLLM."""
    found = [*_stubs(variables.get(VARIABLE), "", 0)]
    for setting in () if isinstance(launch, Unknown) else launch.settings:
        if setting.name == VARIABLE and not setting.removed:
            # A value that extends the old one is not fully known, so its source line is read.
            value = _line(setting.path, setting.line) if setting.value is None else setting.value
            found += _stubs(value, setting.path, setting.line)
    if not isinstance(rollout, Unknown):
        for path in sorted(Path(rollout.path).parent.glob("*.py")):
            found += _set_in_python(path)
    written = {stub.folder for stub in found if stub.path}
    return LibraryPath(
        tuple(dict.fromkeys(stub for stub in found if stub.path or stub.folder not in written))
    )


def _stubs(value: str, path: str, line: int) -> Iterator[StubFolder]:
    for folder in _STUBS.findall(value):
        yield StubFolder(folder, path, line, os.path.exists(f"{folder}/{_LOADERS_NAME}"))


def _set_in_python(path: Path) -> Iterator[StubFolder]:
    """Stub folders in a module that sets the variable: the old remedy for `cannot find -lcuda`."""
    source = read(path)
    if isinstance(source, Unreadable) or VARIABLE.encode() not in source or b"stubs" not in source:
        return
    tree = parse(source, path)
    if isinstance(tree, Unreadable):
        return
    lines = [node.lineno for node in walk(tree) if isinstance(node, (ast.stmt, ast.expr)) and sets(node)]
    for node in walk(tree) if lines else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _stubs(node.value, str(path), lines[0])


def sets(node: ast.AST) -> bool:
    """Return whether a statement assigns to the variable's key in `os.environ[...]` or any other mapping."""
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=name))]):
            return name == VARIABLE
        case ast.AugAssign(target=ast.Subscript(slice=ast.Constant(value=name))):
            return name == VARIABLE
        case ast.Call(func=ast.Attribute(attr="setdefault" | "putenv"), args=[ast.Constant(value=name), *_]):
            return name == VARIABLE
    return False


def _line(path: str, number: int) -> str:
    lines = (load_text(path) or "").splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""
