"""Computes what a small function returns from its syntax tree: constants, comparisons, math and branches.

Math means arithmetic.

For example, it determines whether a class supports a head size of 80 without importing the source.
Unsupported code is `UNCLEAR`, and so is every result that depends on it.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, Final

from verl_doctor.toolkit.sources.python.source import dotted


class Unclear:
    """The single unknown value."""

    def __repr__(self) -> str:
        return "UNCLEAR"


UNCLEAR: Final = Unclear()
RAISES: Final = object()
"""The result of a function that raises instead of returning."""

Call = Callable[[str, tuple[Any, ...]], Any]
"""Evaluates a call by its dotted name and positional arguments, or returns `UNCLEAR`."""

_STEPS = 2_000
COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_MOST_BITS, _LONGEST = 4096, 100_000
_WIDTH = re.compile(r"%[^a-zA-Z%]*(?:\d{4}|\*)")


def _bounded(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operation that raises ValueError for what may fill the memory or take hours.

    Nothing could interrupt it.
    """

    def applied_to(left: Any, right: Any) -> Any:
        sizes = [
            value.bit_length() if isinstance(value, int) else len(value) if isinstance(value, Sized) else 0
            for value in (left, right)
        ]
        numbers = [value for value in (left, right) if isinstance(value, int)]
        if operation is operator.mul and len(numbers) == 1:  # a text or list several times
            sizes = [len(value) * max(0, numbers[0]) for value in (left, right) if isinstance(value, Sized)]
        longest = _MOST_BITS if len(numbers) == 2 else _LONGEST
        is_wide = operation is operator.mod and isinstance(left, str) and _WIDTH.search(left)
        if sum(sizes) > longest or is_wide:
            raise ValueError
        return operation(left, right)

    return applied_to


ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _bounded(operator.add),
    ast.Sub: operator.sub,
    ast.Mult: _bounded(operator.mul),
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _bounded(operator.mod),
}


def returned(
    function: ast.FunctionDef | ast.AsyncFunctionDef, arguments: Mapping[str, Any], call: Call
) -> Any:
    """Return the function's result for these arguments, `RAISES`, or `UNCLEAR`.

    Parameters that are not given, and all external names, are unclear. Where a condition is unclear both
    branches are followed, and only a result that they share counts.
    """
    return _Run(call).block(function.body, dict(arguments))


class _Run:
    """One evaluation, bounded in its number of steps: a chain of unclear branches doubles with each."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._left = _STEPS

    def block(self, body: Sequence[ast.stmt], names: dict[str, Any]) -> Any:
        """Run statements to the first return. Falling off the end returns None, as in Python."""
        for index, node in enumerate(body):
            self._left -= 1
            if self._left < 0:
                return UNCLEAR
            match node:
                case ast.Return(value=value):
                    return None if value is None else self.value(value, names)
                case ast.Raise():
                    return RAISES
                case ast.If(test=test):
                    rest = body[index + 1 :]
                    known = self.value(test, names)
                    ways = (
                        (node.body, node.orelse)
                        if known is UNCLEAR
                        else ((node.body if known else node.orelse),)
                    )
                    answers = [self.block([*way, *rest], dict(names)) for way in ways]
                    return answers[0] if _same(answers) else UNCLEAR
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    names[name] = self.value(value, names)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    names[name] = self.value(value, names)
                case ast.Import() | ast.ImportFrom():
                    names.update({(alias.asname or alias.name): UNCLEAR for alias in node.names})
                case ast.Expr() | ast.Pass() | ast.Assert():
                    continue
                case _:
                    return UNCLEAR
        return None

    def value(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """Return the value of an expression."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return names.get(name, UNCLEAR)
            case ast.NamedExpr(value=inner):
                return self.value(inner, names)  # the name stays unclear
            case ast.Set(elts=elements):
                return as_set(self.value(element, names) for element in elements)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return _clear(tuple(self.value(element, names) for element in elements))
            case ast.Attribute(value=inner, attr=name):
                owner = self.value(inner, names)
                fields = getattr(owner, "_fields", ())  # a named tuple: no other object is inspected
                return getattr(owner, name) if name in fields else UNCLEAR
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner_value = self.value(operand, names)
                return UNCLEAR if inner_value is UNCLEAR else not inner_value
            case ast.BoolOp(op=op, values=values):
                return self._joined(isinstance(op, ast.And), values, names)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = self.value(test, names)
                return UNCLEAR if known is UNCLEAR else self.value(body if known else orelse, names)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compared(left, ops, comparators, names)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return applied(ARITHMETIC[type(op)], self.value(left, names), self.value(right, names))
            case ast.Call(func=func, args=arguments, keywords=[]) if dotted(func):
                given = _clear(tuple(self.value(argument, names) for argument in arguments))
                return UNCLEAR if given is UNCLEAR else self._call(dotted(func), given)
        return UNCLEAR

    def _joined(self, every: bool, values: Sequence[ast.expr], names: Mapping[str, Any]) -> Any:
        """Evaluate `and` (`every`) or `or`: one operand may decide although another is unclear."""
        found = [self.value(value, names) for value in values]
        for value in found:
            if value is not UNCLEAR and bool(value) is not every:
                return value
        return UNCLEAR if UNCLEAR in found else found[-1]

    def _compared(
        self,
        left: ast.expr,
        ops: Sequence[ast.cmpop],
        comparators: Sequence[ast.expr],
        names: Mapping[str, Any],
    ) -> Any:
        values = [self.value(node, names) for node in (left, *comparators)]
        if UNCLEAR in values:
            return UNCLEAR
        found = [applied(COMPARE[type(op)], values[index], values[index + 1]) for index, op in enumerate(ops)]
        return UNCLEAR if UNCLEAR in found else all(found)


def _clear(values: tuple[Any, ...]) -> Any:
    return UNCLEAR if UNCLEAR in values else values


def as_set(values: Iterable[Any]) -> Any:
    """Return the set of these values, `UNCLEAR` unless all of them are known texts, numbers or None."""
    known = list(values)
    return set(known) if all(isinstance(value, (str, int, float, type(None))) for value in known) else UNCLEAR


def _same(answers: Sequence[Any]) -> bool:
    return all(type(answer) is type(answers[0]) and answer == answers[0] for answer in answers)


def applied(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Apply an operation to two values; `UNCLEAR` when one of them is, or when they are incompatible."""
    try:
        return UNCLEAR if UNCLEAR in (left, right) else operation(left, right)
    except (TypeError, ValueError, ArithmeticError, MemoryError):
        return UNCLEAR
