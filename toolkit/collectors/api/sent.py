"""Methods named by a string: `engine.collective_rpc("sleep")` makes every worker run its method `sleep`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.sources.python.answers import Answer, External, Missing, Present, Unresolved
from verl_doctor.toolkit.sources.python.classes import member
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import SourceTree, parse, read, walk
from verl_doctor.toolkit.sources.python.symbols import Class

SENDS = "collective_rpc"
"""The method that makes the workers run the method whose name it gets."""

# The classes that run it: the worker, and the wrapper's own methods (it forwards the rest).
_WORKERS = ("vllm.v1.worker.gpu_worker.Worker", "vllm.worker.worker.Worker")
_WRAPPERS = ("vllm.v1.worker.worker_base.WorkerWrapperBase", "vllm.worker.worker_base.WorkerWrapperBase")


def senders(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return a module's functions that send a name from their arguments: `collective_rpc` and its callers.

    `nodes` are all that the module holds.
    """
    found = {SENDS}
    every = list(nodes)
    if not any(isinstance(node, ast.Attribute) and node.attr == SENDS for node in every):
        return frozenset(found)
    for node in every:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parameters = {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
            for part in walk(node):
                if isinstance(part, ast.Call) and called_name(part) == SENDS and _given(part, parameters):
                    found.add(node.name)
    return frozenset(found)


def called_name(node: ast.Call) -> str:
    """Return the callee's name; for a Ray handle's `handle.name.remote(...)`, the name before `remote`."""
    function = node.func
    if (
        isinstance(function, ast.Attribute)
        and function.attr == "remote"
        and isinstance(function.value, ast.Attribute)
    ):
        function = function.value
    return function.attr if isinstance(function, ast.Attribute) else ""


def names_sent(node: ast.Call) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the literal method name in `collective_rpc("init_worker")`, however passed, and its position."""
    for given in [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "method")]:
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            yield given.value, (given.lineno, given.col_offset)


def worker_has(sources: Sources, own: SourceTree, name: str) -> Answer:
    """Return whether the workers can run a method of this name.

    The method is vLLM's own, or one of a class that `own`, the examined tree, mixes in.
    """
    found = [answer.definition for answer in map(sources.resolve, _WORKERS) if isinstance(answer, Present)]
    answers = [member(sources, worker, name) for worker in found if isinstance(worker, Class)]
    wrappers = [
        answer.definition for answer in map(sources.resolve, _WRAPPERS) if isinstance(answer, Present)
    ]
    answers += [
        Present(wrapper.members[name])
        for wrapper in wrappers
        if isinstance(wrapper, Class) and name in wrapper.members
    ]
    present = next((answer for answer in answers if isinstance(answer, Present)), None)
    if present is not None or _is_mixed_in(own, name):
        return present or Present(External(name))
    open_ended = next((answer for answer in answers if not isinstance(answer, Missing)), None)
    return open_ended or next(iter(answers), Unresolved("the class of the workers was not found"))


def _is_mixed_in(tree: SourceTree, method: str) -> bool:
    """Return whether a class that the tree names by a string, as it does for the workers, has the method."""
    sources = [(path, source) for path in tree.files() if isinstance(source := read(path), bytes)]
    wanted = f"def {method}(".encode()
    owners = {
        node.name.encode()
        for path, source in sources
        if wanted in source
        for node in getattr(parse(source, path), "body", ())
        if isinstance(node, ast.ClassDef) and any(getattr(part, "name", "") == method for part in node.body)
    }
    return any(re.search(rb"\." + owner + rb"[\"']", source) for owner in owners for _, source in sources)


def _given(node: ast.Call, parameters: set[str]) -> bool:
    first = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "method")]
    return any(isinstance(value, ast.Name) and value.id in parameters for value in first)
