"""Errors that a user's own reward function is certain to raise because of how verl calls it.

The call comes in a thread, with a dictionary.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.collectors.configuration.own_code import (
    FUNCTIONS,
    YIELDS,
    evaluated,
    followed,
    imports_more,
    may_leave,
    reached,
)
from verl_doctor.toolkit.sources.python.bound import lasting, names_bound
from verl_doctor.toolkit.sources.python.source import dotted, walk

_SIGNAL = (("signal", ("signal",)),)
_LOOP = (
    ("asyncio", ("get_event_loop", "get_running_loop")),
    ("asyncio.events", ("get_event_loop", "get_running_loop")),
)
_CACHES = (("functools", ("lru_cache", "cache")),)
_SETS_LOOP = frozenset({"set_event_loop", "set_event_loop_policy", "nest_asyncio", "_set_running_loop"})
_DETAILS = "extra_info"  # the dictionary among the arguments


def refused_in_a_thread(tree: ast.Module, called: str) -> Iterator[str]:
    """Yield what a function certainly calls that Python refuses outside of the main thread.

    The results are predicates of the file.

    Its own functions that it certainly calls count, and classes of the file that it enters with `with`.
    """
    own = lasting(tree)
    functions = {
        name: node for name, node in own.items() if isinstance(node, FUNCTIONS) and not node.decorator_list
    }
    function = functions.get(called)
    if not isinstance(function, ast.FunctionDef) or any(isinstance(node, YIELDS) for node in walk(function)):
        return
    handlers = _names_of(tree, _SIGNAL)
    may_have_loop = imports_more(tree) or bool(_SETS_LOOP & {_word(node) for node in walk(tree)})
    loops = frozenset() if may_have_loop else _names_of(tree, _LOOP)
    entered = [
        (f"in {method.name} of {owner.name}", method.body)
        for call in _entered(function.body)
        if isinstance(owner := own.get(dotted(call.func)), ast.ClassDef)
        and not (owner.decorator_list or owner.keywords)
        for method in owner.body
        if isinstance(method, ast.FunctionDef)
        and method.name in ("__init__", "__enter__")
        and not method.decorator_list
    ]
    for when, body in ((f"in {called}", function.body), *entered, *followed(functions, function.body)):
        for node in _calls(body):
            name = ast.unparse(node.func)
            if name in handlers:
                yield (
                    f"sets the handler of a signal {when} (line {node.lineno}), but verl calls {called} in "
                    "a thread, where Python refuses that"
                )
            if name in loops:
                yield (
                    f"calls {name} {when} (line {node.lineno}), but verl calls {called} in a thread, which "
                    "has no event loop"
                )


def remembered(tree: ast.Module, called: str) -> Iterator[str]:
    """Yield where a dictionary certainly comes to a function that remembers its results.

    The function remembers them by its arguments. Each result of this function is a predicate of the file.
    """
    caches = _names_of(tree, _CACHES)
    own = lasting(tree)
    cached = {
        name
        for name, node in own.items()
        if isinstance(node, FUNCTIONS)
        and len(node.decorator_list) == 1
        and _decorator(node.decorator_list[0]) in caches
    }
    function = own.get(called)
    if called in cached and function is not None:
        yield (
            f"has a {called} that remembers results by its arguments (line {function.lineno}), but verl "
            f"passes {_DETAILS} as a dictionary, which cannot be hashed"
        )
        return
    if (
        not isinstance(function, FUNCTIONS)
        or function.decorator_list
        or Counter(names_bound(function))[_DETAILS] != 1
    ):
        return
    if _DETAILS not in {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}:
        return
    for node in _calls(function.body):
        passed = (*node.args, *(word.value for word in node.keywords))
        if dotted(node.func) in cached and any(
            isinstance(part, ast.Name) and part.id == _DETAILS for part in passed
        ):
            yield (
                f"passes {_DETAILS} to {dotted(node.func)} in {called} (line {node.lineno}), which "
                "remembers results by its arguments, but a dictionary cannot be hashed"
            )


def _calls(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """Yield the calls that a block certainly makes."""
    for statement in reached(body):
        yield from (node for node in evaluated(statement) if isinstance(node, ast.Call))


def _entered(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """Yield the calls whose result a block certainly enters first with `with`."""
    for statement in body:
        if isinstance(statement, ast.With) and isinstance(call := statement.items[0].context_expr, ast.Call):
            yield call
        if may_leave(statement):
            return


def _decorator(mark: ast.expr) -> str:
    return dotted(mark.func if isinstance(mark, ast.Call) else mark)


def _word(node: ast.AST) -> str:
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
            return word
    return ""


def _names_of(tree: ast.Module, functions: Sequence[tuple[str, Sequence[str]]]) -> frozenset[str]:
    """Return the names by which a file calls functions of these modules; none that anything else binds."""
    counts = Counter(names_bound(tree))
    found: dict[str, str] = {}
    for module, names in functions:
        for node in walk(tree):
            match node:
                case ast.Import(names=aliases):
                    for alias in aliases:
                        if alias.name == module:
                            base = alias.asname or alias.name
                            found |= {f"{base}.{name}": base.partition(".")[0] for name in names}
                case ast.ImportFrom(module=source, level=0, names=aliases) if source == module:
                    found |= {
                        alias.asname or alias.name: alias.asname or alias.name
                        for alias in aliases
                        if alias.name in names
                    }
    return frozenset(name for name, bound in found.items() if counts[bound] == 1)
