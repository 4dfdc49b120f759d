"""Which uses of `disable_log_requests` work on both sides of the rename as they are: for the edits of VLLM101 and their proof."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import chain

from verl_doctor.patches._log_requests_places import NEW, OLD, Place
from verl_doctor.toolkit.py_source import dotted


class Settled:
    """Tells which places of a source work as they are: guarded ones, and those of verl's own things of that name."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        self._foreign = {name for node in imports for name in _of_vllm(node)}
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        self._classes = [
            node for node in classes if _has_own(node) and not _bases(node) and not _binds(node, "self")
        ]
        self._named = {node.name for node in self._classes}
        self._takers = {node.name for node in functions if _takes(node)} | {
            node.name
            for node in classes
            if _constructed(node) or (_declares(node) and not self._derives(node))
        }
        self._objects = self._own_objects(nodes)
        self._dumps = {name for node in nodes for name in _dumped(node)}
        self.lost = [node for node in classes if _declares(node) and self._derives(node)]

    def _derives(self, node: ast.ClassDef) -> bool:
        """Whether a class is derived from one of vLLM's."""
        return any(base.partition(".")[0] in self._foreign for base in _bases(node))

    def __call__(self, place: Place) -> bool:
        """Whether the place needs no edit."""
        match place.kind:
            case "read":
                return self.own(place) or _guarded(place)
            case "keyword":
                return _asked(place) or self._taken(place.above[0])
            case "key" | "item":
                return _written(place) or _asked(place)
            case "looked up":
                name = dotted(place.owner) if place.owner else ""
                return bool(name) and name not in self._dumps and "__dict__" not in name.split(".")
            case "asked":
                return True
        return self.own(place) or _written(place)

    def own(self, place: Place) -> bool:
        """Whether the owner is an object of a class of this file that has the old name and is not vLLM's."""
        match place.owner:
            case ast.Name(id="self"):
                around = next((node for node in place.above if isinstance(node, ast.ClassDef)), None)
                return around in self._classes
            case ast.Name(id=name):
                return name in self._objects
        return False

    def _taken(self, call: ast.AST) -> bool:
        """Whether a function or class of this file takes the keyword by its name."""
        if not isinstance(call, ast.Call):
            return False
        name = dotted(call.func).removesuffix(".remote").removeprefix("self.").removeprefix("cls.")
        return name in self._takers

    def _own_objects(self, nodes: Iterable[ast.AST]) -> set[str]:
        """Names that are bound to objects of such classes wherever they are bound."""
        own: set[str] = set()
        others: set[str] = set()
        bound: set[ast.AST] = set()
        for node in nodes:
            match node:
                case ast.arguments():
                    given = [*node.posonlyargs, *node.args]
                    defaults = [
                        *[None] * (len(given) - len(node.defaults)),
                        *node.defaults,
                        *node.kw_defaults,
                    ]
                    for argument, default in zip([*given, *node.kwonlyargs], defaults, strict=True):
                        (own if self._makes(argument.annotation, default) else others).add(argument.arg)
                    others.update(rest.arg for rest in (node.vararg, node.kwarg) if rest)
                case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                    (own if self._makes(None, value) else others).add(name)
                    bound.add(target)
                case ast.Name(id=name, ctx=ast.Store()) if node not in bound:
                    others.add(name)
                case ast.alias(name=name, asname=alias):
                    others.add(alias or name.partition(".")[0])
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                    others.add(name)
        return own - others

    def _makes(self, annotation: ast.expr | None, value: ast.expr | None) -> bool:
        if annotation is not None:
            return dotted(annotation) in self._named
        return isinstance(value, ast.Call) and dotted(value.func) in self._named


def _of_vllm(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for alias in node.names:
        source = alias.name if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
        if source.partition(".")[0] == "vllm":
            yield alias.asname or alias.name.partition(".")[0]


def _bases(node: ast.ClassDef) -> list[str]:
    return [name for base in node.bases if (name := dotted(base)) != "object"]


def _takes(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(argument.arg == OLD for argument in (*node.args.args, *node.args.kwonlyargs))


def _declares(node: ast.ClassDef) -> bool:
    """Whether the class has a field of the old name."""
    for part in node.body:
        match part:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                if name == OLD:
                    return True
    return False


def _constructed(node: ast.ClassDef) -> bool:
    """Whether its constructor takes the old name."""
    return any(
        isinstance(part, ast.FunctionDef) and part.name == "__init__" and _takes(part) for part in node.body
    )


def _dumped(node: ast.AST) -> Iterator[str]:
    """Names that are bound to the fields of an object, in which a renamed one is under its new name."""
    match node:
        case ast.Assign(targets=targets, value=value):
            read = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(value)}
            if read & {"vars", "asdict", "__dict__"}:
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def _has_own(node: ast.ClassDef) -> bool:
    """Whether objects of the class have the old name: a field, a method, or what a method stores on `self`."""
    stored = (
        part.value.id == "self"
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr == OLD
        if isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Name)
    )
    return _declares(node) or any(getattr(part, "name", "") == OLD for part in node.body) or any(stored)


# --- guards


def _guarded(place: Place) -> bool:
    """Whether a read is reached only where its owner, a plain name, has the old name or lacks the new one."""
    owner = place.owner
    if not isinstance(owner, ast.Name):
        return False
    return any(
        _holds(test, owner.id, met=met) for test, met, around in _tests(place) if not _binds(around, owner.id)
    )


def _tests(place: Place) -> Iterator[tuple[ast.expr, bool, ast.AST]]:
    """Conditions under which a place is reached: each with whether it was met, and the node that asks it."""
    for child, node in zip((place.node, *place.above), place.above, strict=False):
        match node:
            case ast.IfExp(test=test, body=body) if child is not test:
                yield test, child is body, node
            case ast.If(test=test, body=body) if child is not test:
                yield test, child in body, node
            case ast.BoolOp(op=op, values=values):
                before = values[: next(index for index, value in enumerate(values) if value is child)]
                yield from ((value, isinstance(op, ast.And), node) for value in before)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return


def _holds(test: ast.expr, owner: str, *, met: bool) -> bool:
    """Whether a condition, met or not, says that `owner` has the old name or lacks the new one."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _holds(inner, owner, met=not met)
        case ast.BoolOp(op=ast.And(), values=values) if met:
            return any(_holds(value, owner, met=met) for value in values)
        case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id=name), ast.Constant(value=asked)]):
            return name == owner and asked == (OLD if met else NEW)
    return False


def _binds(node: ast.AST, name: str) -> bool:
    return any(
        isinstance(part, ast.Name) and part.id == name and not isinstance(part.ctx, ast.Load)
        for part in ast.walk(node)
    )


def _written(place: Place) -> bool:
    """Whether a name in a string stands where only those get that lack the new one: the form that the fix writes."""
    return any(
        isinstance(around, ast.IfExp) and not met and _asks_for_new(test)
        for test, met, around in _tests(place)
    )


def _asks_for_new(test: ast.expr) -> bool:
    match test:
        case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(), ast.Constant(value=name)]):
            return bool(name == NEW)
        case ast.Compare(
            left=ast.Constant(value=name), ops=[ast.In()], comparators=[ast.Attribute(attr=attr)]
        ):
            return bool(name == NEW) and attr == "parameters"
    return False


def _asked(place: Place) -> bool:
    """Whether the author of the file uses the new name where this place is not reached: in the other branch."""
    for child, node in zip((place.node, *place.above), place.above, strict=False):
        match node:
            case ast.If(test=test, body=body, orelse=orelse) if child is not test:
                if _mentions_new(orelse if child in body else body):
                    return True
            case ast.IfExp(test=test, body=one, orelse=other) if child is not test:
                if _mentions_new([other if child is one else one]):
                    return True
    return False


def _mentions_new(nodes: Iterable[ast.AST]) -> bool:
    """Whether the new name occurs, as a string, an attribute or a keyword."""
    return any(
        NEW in (getattr(node, "attr", None), getattr(node, "arg", None))
        or (isinstance(node, ast.Constant) and node.value == NEW)
        for node in chain.from_iterable(ast.walk(node) for node in nodes)
    )
