"""Indirect calls, such as `partial(f, x=1)`.

Others are `asyncio.to_thread(f, 1)`, `Thread(target=f)` and `ray.remote(C).remote(1)`.
"""

from __future__ import annotations

import ast

from verl_doctor.toolkit.collectors.api.value import Scope
from verl_doctor.toolkit.collectors.api.values import ValueReader

_PARTIAL = frozenset({"functools.partial", "functools.partialmethod"})
_PASSES_ON = frozenset({"asyncio.to_thread"})
_STARTS = frozenset({"threading.Thread", "multiprocessing.Process"})


def forwarded(node: ast.Call, reader: ValueReader, scope: Scope) -> tuple[ast.Call, bool] | None:
    """Return the call that is eventually made; None for a direct call.

    The result includes whether the call may receive more arguments later.
    """
    match node.func:
        case ast.Attribute(value=ast.Call(args=[remote]) as made, attr="remote"):
            return (
                (_call(remote, node, node.args), False)
                if reader.callee(made, scope) == "ray.remote"
                else None
            )
        case ast.Attribute(attr="run_in_executor") if len(node.args) > 1:
            return _call(node.args[1], node, node.args[2:]), False
    name = reader.callee(node, scope)
    if name in _PARTIAL and node.args:
        return _call(node.args[0], node, node.args[1:]), True
    if name in _PASSES_ON and node.args:
        return _call(node.args[0], node, node.args[1:]), False
    if name in _STARTS:
        return _started(node)
    return None


def _started(node: ast.Call) -> tuple[ast.Call, bool] | None:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    target, places = given.get("target"), given.get("args", ast.Tuple([], ast.Load()))
    if target is None or not isinstance(places, (ast.Tuple, ast.List)):
        return None
    spread = [ast.keyword(None, given["kwargs"])] if "kwargs" in given else []
    return _call(target, node, places.elts, spread), False


def _call(
    function: ast.expr, node: ast.Call, places: list[ast.expr], keywords: list[ast.keyword] | None = None
) -> ast.Call:
    made = ast.Call(function, places, node.keywords if keywords is None else keywords)
    return ast.copy_location(made, node)
