"""What is seen of followed code without its values.

Generators, names bound outside, and statements that raise or suppress nothing.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Sequence

from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.refused import LONGEST
from verl_doctor.toolkit.sources.python.refusals.values import Frame
from verl_doctor.toolkit.sources.python.source import dotted, walk


@functools.lru_cache(maxsize=1024)  # the same functions are followed again and again
def _about(function: ast.AST) -> tuple[bool, frozenset[str]]:
    """Return whether a function yields, and the names that it, or one in it, binds outside of itself."""
    yields, names = False, set[str]()
    for part in walk(function):
        if isinstance(part, (ast.Yield, ast.YieldFrom)):
            yields = True
        elif isinstance(part, (ast.Global, ast.Nonlocal)):
            names.update(part.names)
    return yields, frozenset(names)


def yields(function: ast.AST) -> bool:
    """Return whether a function is a generator."""
    return _about(function)[0]


def rebound(function: ast.AST) -> frozenset[str]:
    """Return the names that a function, or one in it, binds outside of itself."""
    return _about(function)[1]


def succeeds(node: ast.stmt, frame: Frame) -> bool:
    """Return whether a statement, which was followed, raises nothing.

    It is the assignment of a constant, or an import that was found.
    """
    match node:
        case ast.Assign(targets=[ast.Name()], value=ast.Constant()) | ast.Pass():
            return True
        case ast.ImportFrom(names=aliases):
            return all(frame.names.get(alias.asname or alias.name) is not UNCLEAR for alias in aliases)
    return False


def catching(handlers: Sequence[ast.ExceptHandler], raised: str) -> ast.ExceptHandler | None:
    """Return the handler that catches an exception of Python's own, by its name.

    None if that is not certain, or nothing catches it.
    """
    kind = getattr(builtins, raised, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    for handler in handlers:
        listed = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        caught = [getattr(builtins, dotted(name), None) for name in listed if name is not None]
        if handler.type is None or any(isinstance(each, type) and issubclass(kind, each) for each in caught):
            return handler
        if None in caught:
            return None
    return None


def decorator_of(mark: ast.expr) -> str:
    """Return the name of a decorator, with or without arguments."""
    return dotted(mark.func if isinstance(mark, ast.Call) else mark)


def suppresses(context: ast.expr) -> bool:
    """Return whether a `with` may suppress what is raised in it."""
    name = dotted(context.func if isinstance(context, ast.Call) else context).rpartition(".")[2]
    return not name or any(word in name.lower() for word in ("suppress", "raises", "catch", "ignore"))


def leaves_loop(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block may leave the loop around it, or begin its next round."""
    return any(isinstance(part, (ast.Break, ast.Continue)) for node in body for part in walk(node))


def words_of(node: ast.AST) -> str:
    """Return code on one line, as far as a message shows it."""
    return " ".join(ast.unparse(node).split())[:LONGEST]
