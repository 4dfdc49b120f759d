"""How the engine process of verl's async rollout finds its workers: `ray.init`, then named actors.

The named actors are those with a prefix.

verl 0.4 and 0.5, and copies of them, start vLLM's engine as a child of a Ray actor. The child gets the
namespace and the prefix from `vllm_config.instance_id`; which Ray it reaches is left to `ray.init`
(verl-project/verl#1138).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.sources.python.source import dotted, statements, walk

ADDRESS = "RAY_ADDRESS"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class EngineLookup:
    """One function that connects to Ray and selects actors by a name prefix.

    `inits` are its calls of `ray.init`, `names` the variable that receives the actors' names, `listing` the
    assigned expression, `prefix` the prefix of the names. `expected` asserts how many there must be, None
    when nothing does.
    """

    function: Function
    inits: tuple[ast.Call, ...]
    assigned: ast.Assign
    names: str
    listing: ast.expr
    prefix: ast.expr
    expected: ast.Assert | None

    @property
    def wanted(self) -> ast.expr | None:
        """The number of actors that the function expects, as an expression."""
        match self.expected:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
                return right if _is_length(left, self.names) else left
        return None

    @property
    def kind(self) -> str:
        """The literal part of the prefix: "WorkerDict"."""
        parts = (node.value for node in walk(self.prefix) if isinstance(node, ast.Constant))
        return "".join(part for part in parts if isinstance(part, str))

    def given(self, keyword: str) -> ast.expr | None:
        """Return an argument of the first `ray.init` by name."""
        return next((keyword_.value for keyword_ in self.inits[0].keywords if keyword_.arg == keyword), None)


def engine_lookups(tree: ast.Module) -> Iterator[EngineLookup]:
    """Yield every such function of a module."""
    for function in statements(tree):
        if isinstance(function, Function):
            inits = tuple(call for call in _calls(function) if dotted(call.func) == "ray.init")
            for statement in statements(function) if inits else ():
                if isinstance(statement, ast.Assign) and (found := _picks(statement)):
                    names, prefix = found
                    yield EngineLookup(
                        function, inits, statement, names, statement.value, prefix, _asserts(function, names)
                    )
                    break


def address_statement(tree: ast.Module) -> ast.Assign | None:
    """Return the statement that passes the engine process the address of its parent's own Ray.

    The parent passes the address; None without such a statement.
    """
    for node in statements(tree):
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=environ, slice=ast.Constant(value=name))], value=value
            ) if name == ADDRESS and dotted(environ) == "os.environ" and _is_own_address(value):
                return node
    return None


def identified(tree: ast.Module) -> list[ast.Assign]:
    """Return the parent's statements that set the engine's `instance_id`, holding namespace and prefix."""
    return [
        node
        for node in statements(tree)
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Attribute)
        and node.targets[0].attr == "instance_id"
    ]


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (part for part in walk(node) if isinstance(part, ast.Call))


def _is_own_address(value: ast.expr) -> bool:
    """Return whether a value is `ray.get_runtime_context().gcs_address`."""
    return isinstance(value, ast.Attribute) and value.attr == "gcs_address"


def _picks(statement: ast.Assign) -> tuple[str, ast.expr] | None:
    """Match a statement that picks the named actors with a prefix, and return its variable and prefix.

    The statement is `names = [name for name in ray.util.list_named_actors() if name.startswith(prefix)]`.
    """
    match statement:
        case ast.Assign(
            targets=[ast.Name(id=names)],
            value=ast.ListComp(
                elt=ast.Name(id=element),
                generators=[
                    ast.comprehension(
                        target=ast.Name(id=each),
                        iter=ast.Call(func=listed),
                        ifs=[
                            ast.Call(
                                func=ast.Attribute(value=ast.Name(id=tested), attr="startswith"),
                                args=[prefix],
                            )
                        ],
                    )
                ],
            ),
        ) if element == each == tested and dotted(listed).endswith("list_named_actors"):
            return names, prefix
    return None


def _asserts(function: Function, names: str) -> ast.Assert | None:
    for node in statements(function):
        match node:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
                if _is_length(left, names) or _is_length(right, names):
                    return node
    return None


def _is_length(node: ast.expr, names: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=of)]):
            return of == names
    return False
