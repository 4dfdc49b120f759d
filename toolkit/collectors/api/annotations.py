"""The annotations of functions, which Python evaluated when it defined them, up to 3.13."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_doctor.toolkit.collectors.api.surroundings import python_release

_DEFERS = (3, 14)


def are_evaluated(tree: ast.Module, python: str) -> bool:
    """Return whether a module's functions certainly evaluate their annotations when they are defined.

    `python` is the version that runs it, "" if unknown.
    """
    deferred = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )
    release = python_release(python)
    return not deferred and bool(release) and release < _DEFERS


def annotations_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """Yield the annotations of a function's parameters and of its result."""
    arguments = [
        *node.args.posonlyargs,
        *node.args.args,
        *node.args.kwonlyargs,
        node.args.vararg,
        node.args.kwarg,
    ]
    yield from (argument.annotation for argument in arguments if argument is not None and argument.annotation)
    if node.returns is not None:
        yield node.returns
