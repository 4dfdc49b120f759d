"""The names that a module binds, and the definitions that its names still mean once it is imported."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from verl_doctor.toolkit.sources.python.source import walk

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# With these a module may bind names, or replace code, where no statement shows it.
_UNSEEN = frozenset(
    {
        "exec",
        "globals",
        "locals",
        "vars",
        "setattr",
        "delattr",
        "modules",
        "builtins",
        "__builtins__",
        "__dict__",
        "__setattr__",
        "__code__",
        "_getframe",
        "reload",
        "ctypes",
    }
)


def names_bound(tree: ast.AST) -> Iterator[str]:
    """Yield each name as often as a module binds or deletes it, in any scope."""
    for node in walk(tree):
        match node:
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case _:  # definitions, handlers of exceptions, patterns and parameters of types
                if isinstance(other := getattr(node, "name", None), str):
                    yield other


def lasting(tree: ast.Module) -> Mapping[str, Definition]:
    """Return the functions and classes at the top of a module whose names certainly mean them in the end.

    Nothing else binds these names.
    """
    words = {word for node in walk(tree) for word in _words(node)}
    if words & _UNSEEN:
        return {}
    counts = Counter(names_bound(tree))
    stars = [
        node.lineno for node in walk(tree) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and counts[node.name] == 1
        and node.lineno > max(stars, default=0)
    }


def _words(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word):
            yield word
        case ast.ImportFrom(module=str(module)):
            yield from module.split(".")
        case ast.alias(name=name):
            yield from name.split(".")
