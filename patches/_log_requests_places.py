"""Where a source uses `disable_log_requests`, read from its syntax tree alone: for the edits of VLLM101 and their proof."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_doctor.checks._vllm_renames import LOG_REQUESTS

OLD, NEW = LOG_REQUESTS.old, LOG_REQUESTS.new
Above = tuple[ast.AST, ...]
Edited = ast.expr | ast.stmt | ast.keyword


@dataclass(frozen=True)
class Place:
    """One use of the old name, and the nodes around it, innermost first.

    A "read" or "store" is of an attribute of `owner`, by a dot or by getattr and setattr; a "keyword" stands in a call,
    a "key" in a dict, an "item" is `owner[name] = value`. "asked" is a question whether `owner` has it, "looked up" a read
    from a dict, "other" what no edit is known for; `what` says what it is. `value` is what is given or stored, or the
    default of getattr. An edit replaces all from `first` to `last`.
    """

    kind: Literal["read", "store", "keyword", "key", "item", "asked", "looked up", "other"]
    node: ast.expr | ast.keyword | ast.pattern
    above: Above
    first: Edited | None = None
    last: Edited | None = None
    owner: ast.expr | None = None
    value: ast.expr | None = None
    what: str = ""


def places(tree: ast.AST) -> list[Place]:
    """Every use of the old name, in the order of the tree."""
    return [place for node, above in _walk(tree, ()) if (place := _place(node, above))]


def _walk(node: ast.AST, above: Above) -> Iterator[tuple[ast.AST, Above]]:
    for child in ast.iter_child_nodes(node):
        yield child, (node, *above)
        yield from _walk(child, (node, *above))


def _place(node: ast.AST, above: Above) -> Place | None:
    match node:
        case ast.Attribute(attr=name, value=owner) if name == OLD:
            return _attribute(node, owner, above)
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, name, *rest], keywords=[]) if _is_old(name):
            return Place("read", node, above, node, node, owner, rest[0] if rest else None)
        case ast.Call(func=ast.Name(id="setattr"), args=[owner, name, value], keywords=[]) if _is_old(name):
            return Place("store", node, above, node, node, owner, value)
        case ast.keyword(arg=name, value=value) if name == OLD:
            return Place("keyword", node, above, node, node, None, value)
        case ast.Constant() if _is_old(node):
            return _string(node, above)
        case ast.MatchClass(kwd_attrs=names) if OLD in names:
            return Place("other", node, above, what="a pattern reads it")
    return None


def _attribute(node: ast.Attribute, owner: ast.expr, above: Above) -> Place:
    match node.ctx, above[0]:
        case ast.Load(), ast.pattern():
            return Place("other", node, above, what="a pattern reads it")
        case ast.Load(), _:
            return Place("read", node, above, node, node, owner)
        case ast.Store(), ast.Assign(targets=[_], value=value) as statement:
            return Place("store", node, above, statement, statement, owner, value)
        case ast.Del(), _:
            return Place("other", node, above, owner=owner, what="it is deleted")
    return Place("other", node, above, owner=owner, what="this assignment to it is not a plain one")


def _string(node: ast.Constant, above: Above) -> Place | None:
    """The old name in a string: as a key, or as something of which only its neighbours tell what it is for."""
    match above[0]:
        case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, second, *_]) as call if (
            second is node
        ):
            return (
                None if _place(call, above[1:]) else Place("other", node, above, what="its call is unusual")
            )
        case ast.Dict(keys=keys, values=values) if any(key is node for key in keys):
            value = next(value for key, value in zip(keys, values, strict=True) if key is node)
            return Place("key", node, above, node, value, None, value)
        case ast.Subscript(value=owner, ctx=ast.Store()):
            match above[1]:
                case ast.Assign(targets=[_], value=value) as statement:
                    return Place("item", node, above, statement, statement, owner, value)
            return Place("other", node, above, what="this assignment of it is not a plain one")
        case ast.Expr():
            return None
        case ast.Call(func=ast.Name(id="delattr")):
            return Place("other", node, above, what="it is deleted")
        case ast.Call(func=ast.Name(id="hasattr"), args=[owner, _]):
            return Place("asked", node, above, owner=owner)
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[among]) if left is node:
            return Place("asked", node, above, owner=among)
        case ast.Call(func=ast.Attribute(value=owner, attr="get" | "pop")) | ast.Subscript(value=owner):
            return Place(
                "looked up",
                node,
                above,
                owner=owner,
                what="the dict in which it is looked up may have the new name",
            )
    return Place("other", node, above, what="it stands in a string, and what for cannot be told")


def _is_old(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == OLD
