"""How the installed verl copies a model into shared memory (`use_shm`).

What matters is whether the processes of a node wait for the copying process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, dotted, parse_file, walk

_FILE = "utils/fs.py"
_COPIES = "copy_to_shm"  # since verl 0.4.0
_MOVES = frozenset({"os.rename", "os.replace", "shutil.move"})  # move a finished copy into place


@dataclass(frozen=True)
class ModelCopy:
    """`guarded`: the copy is made under a lock, or moved into place when complete.

    `read_from` is the file that shows it.
    """

    guarded: bool
    read_from: str


@collector(kept=True)
def model_copy(verl: VerlTrees) -> ModelCopy | Unknown:
    """Read the function that copies, and its callers in the same file."""
    path = Path(verl.imported.folder, _FILE)
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return Unknown(f"{path}: {tree.reason}")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if _COPIES not in functions:
        return Absent(f"verl {verl.imported.version} copies no model into shared memory")
    guarded = any(_guards(part) for part in _reached(functions)) or _called_under_lock(tree)
    return ModelCopy(guarded, str(path))


def _reached(functions: dict[str, ast.FunctionDef]) -> Iterator[ast.FunctionDef]:
    """Yield the function and what it calls in its own file."""
    wanted, seen = [_COPIES], {_COPIES}
    while wanted:
        function = functions[wanted.pop()]
        yield function
        called = {dotted(node.func) for node in walk(function) if isinstance(node, ast.Call)}
        new = (called & functions.keys()) - seen
        wanted += new
        seen |= new


def _guards(function: ast.FunctionDef) -> bool:
    """Return whether the function takes a lock or moves a file into place."""
    calls = (dotted(node.func) for node in walk(function) if isinstance(node, ast.Call))
    return any(name in _MOVES or _is_lock(name) for name in calls)


def _called_under_lock(tree: ast.Module) -> bool:
    return any(
        _is_lock(ast.unparse(item.context_expr))
        and any(isinstance(inner, ast.Call) and dotted(inner.func) == _COPIES for inner in walk(node))
        for node in walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
    )


def _is_lock(name: str) -> bool:
    return "lock" in name.lower()
