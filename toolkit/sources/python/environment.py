"""How a Python source uses environment variables: it reads them, sets them, or only mentions their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.sources.python.source import dotted

Use = Literal["reads", "tables", "names", "sets"]

# Calls on the environment that set or unset a variable without reading it.
_SETTERS = ("set", "unset", "put", "del", "pop", "clear", "update")
# vLLM's `envs.py` and modules with its pattern: a dict from names to functions that read them, used by a
# module `__getattr__`.
TABLE = "environment_variables"


@dataclass(frozen=True)
class Mention:
    """One place where a source refers to a variable.

    It "reads" it, "tables" it (an entry of `environment_variables`: read only when the entry is accessed),
    "names" it in a list, a constant or an argument, which other code may read, or "sets" it. `entry` is the
    name of the table's entry.
    """

    name: str
    line: int
    use: Use
    entry: str = ""


def mentions(tree: ast.Module, names: frozenset[str]) -> Iterator[Mention]:
    """Yield every mention of these variables in code. Docstrings, messages and comments do not count."""
    yield from _mentions(tree, (), names, "")


def _mentions(
    node: ast.AST, above: tuple[ast.AST, ...], names: frozenset[str], entry: str
) -> Iterator[Mention]:
    use = _use(node, above, names)
    if use is not None:
        name, done = use
        yield Mention(name, getattr(node, "lineno", 0), "tables" if entry and done != "sets" else done, entry)
    if isinstance(node, ast.Dict) and not entry and _is_table(above):
        for key, value in zip(node.keys, node.values, strict=True):
            text = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
            yield from _mentions(value, (node, *above), names, text or "?")
        return
    for child in ast.iter_child_nodes(node):
        yield from _mentions(child, (node, *above), names, entry)


def _is_table(above: tuple[ast.AST, ...]) -> bool:
    match above[:1]:
        case [ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name))]:
            return name == TABLE
    return False


def _use(node: ast.AST, above: tuple[ast.AST, ...], names: frozenset[str]) -> tuple[str, Use] | None:
    """Return the variable that this node refers to, and how it is used."""
    match node:
        case ast.Constant(value=str(name)) if name in names:
            done = _of_text(node, above)
            return (name, done) if done else None
        case ast.Attribute(attr=name, value=owner) if name in names and _is_environment(owner):
            return name, "reads" if isinstance(node.ctx, ast.Load) else "sets"
        case ast.ImportFrom(module=str(module)) if _is_environment_name(module.rpartition(".")[2]):
            imported = next((alias.name for alias in node.names if alias.name in names), None)
            return (imported, "reads") if imported else None
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=callee)) if name in names:
            return (name, "reads") if _is_environment(callee) else None  # a descriptor: NAME = EnvBool(False)
    return None


def _of_text(node: ast.Constant, above: tuple[ast.AST, ...]) -> Use | None:
    """Return how the variable named by this string is used."""
    match above:
        case [ast.Expr() | ast.JoinedStr() | ast.FormattedValue(), *_]:
            return None
        case [ast.Subscript(value=owner, slice=index, ctx=context), *_] if index is node and _is_environment(
            owner
        ):
            return "reads" if isinstance(context, ast.Load) else "sets"
        case [ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[owner]), *_] if left is node:
            return "reads" if _is_environment(owner) else "names"
        case [ast.Dict(keys=keys, values=values), *_] if node in keys:
            return "sets" if isinstance(values[keys.index(node)], (ast.Constant, ast.JoinedStr)) else "names"
        case [ast.Call(func=callee, args=args), *_]:
            return _of_argument(callee, args)
        case [ast.keyword(), ast.Call(func=callee), *_]:
            return _of_argument(callee, [])
    return "names"


def _of_argument(callee: ast.expr, args: list[ast.expr]) -> Use:
    if _last(callee) == "getattr" and args:
        return "reads" if _is_environment(args[0]) else "names"
    if not _is_environment(callee):
        return "names"
    return "sets" if _is_setter(callee) else "reads"


def _is_setter(callee: ast.expr) -> bool:
    name = _last(callee).lstrip("_").lower()
    # `_set_from_env_if_set` sets something from the environment.
    return name.startswith(_SETTERS) and "from_env" not in name


def _is_environment(node: ast.expr) -> bool:
    """Return whether an expression means the environment: `os.environ`, `os.getenv`, `envs`, `env_bool`."""
    return _is_environment_name(dotted(node) or _last(node))


def _is_environment_name(name: str) -> bool:
    return "env" in name.lower()


def _last(node: ast.expr) -> str:
    """Return the last name of an expression: `get` of `self.environ().get`."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
