"""The statements of a program that certainly run before a call, in their order, if that call certainly runs.

It follows the module, what runs only as the main program, and the program's own functions where they are
called. A condition, a loop, or what may end the program before makes all that depends on it uncertain.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from verl_doctor.toolkit.sources.python.source import dotted, walk

_MOST_STEPS = 5_000
_ENDS = frozenset({"exit", "quit", "_exit", "abort", "error", "fail"})  # `sys.exit`, `parser.error`
_LATER = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
_TRIES = (ast.Try, *filter(None, [getattr(ast, "TryStar", None)]))
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def bindings(tree: ast.AST) -> Counter[str]:
    """Return how often each name is bound or deleted, in any scope and in any way."""
    found: Counter[str] = Counter()
    for node in walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.arg):
            found[node.arg] += 1
        elif isinstance(node, ast.alias):
            found[(node.asname or node.name).partition(".")[0]] += 1
        elif isinstance(node, (*_DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found[node.name] += 1
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found[node.rest] += 1
    return found


def steps_to(call: ast.Call, tree: ast.Module) -> list[tuple[ast.stmt, bool]] | None:
    """Return the statements before a call, each with whether it certainly runs; None if the call may not."""
    following = _Following(call, tree)
    following.all(tree.body, sure=True)
    return following.steps if following.is_reached else None


class _Following:
    """Follows a program to one call.

    `ends`: the program may have ended before. `is_over`: nothing more is followed.
    """

    def __init__(self, call: ast.Call, tree: ast.Module) -> None:
        self.call = call
        self.steps: list[tuple[ast.stmt, bool]] = []
        self.is_reached = self.is_over = self.ends = False
        self.running: list[str] = []
        self.bound = bindings(tree)
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

    def all(self, body: Iterable[ast.stmt], *, sure: bool) -> bool:
        """Follow statements; return whether what comes after them in the same function certainly runs."""
        for node in body:
            if self.is_over:
                return False
            sure = self.statement(node, sure=sure and not self.ends)
        return sure and not self.ends

    def statement(self, node: ast.stmt, *, sure: bool) -> bool:
        if len(self.steps) >= _MOST_STEPS:
            self.is_over = True
        if isinstance(node, _DEFINITIONS):
            return sure
        if sure:
            self.evaluate_all(_expressions(node))
        else:
            self.perhaps_called(_expressions(node))
        if self.is_over:
            return False
        self.steps.append((node, sure))
        is_main = _runs_as_main(node)
        if isinstance(node, ast.If) and is_main is not None:
            return self.all(node.body if is_main else node.orelse, sure=sure)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            if any("suppress" in dotted(getattr(item.context_expr, "func", None)) for item in node.items):
                return self.until_failure(node.body, sure=sure)
            return self.all(node.body, sure=sure)
        if isinstance(node, _TRIES):
            if node.handlers:
                sure = self.until_failure(node.body, sure=sure)
            else:
                sure = self.all(node.body, sure=sure)
            sure = self.perhaps([*_blocks(node.handlers), *node.orelse], sure=sure)
            return self.all(node.finalbody, sure=sure)
        if isinstance(node, (ast.Raise, ast.Assert)):
            self.ends = self.ends or sure
        if isinstance(node, (ast.Return, ast.Raise)):
            return False
        return self.perhaps(list(_blocks([node])), sure=sure)

    def until_failure(self, body: Sequence[ast.stmt], *, sure: bool) -> bool:
        """Follow statements of which a failure is handled: it skips those after the first."""
        sure = self.all(body[:1], sure=sure)
        return self.perhaps(body[1:], sure=sure)

    def perhaps(self, body: Sequence[ast.stmt], *, sure: bool) -> bool:
        """Follow statements that may not run."""
        self.all(body, sure=False)
        self.ends = self.ends or any(self.may_end(node, set()) for node in body)
        return (
            sure
            and not self.is_over
            and not any(isinstance(part, ast.Return) for node in body for part in walk(node))
        )

    def may_end(self, node: ast.AST, seen: set[str]) -> bool:
        """Return whether the program may end below a node, or in a function of its own called there."""
        for part in walk(node):
            if isinstance(part, (ast.Raise, ast.Assert)):
                return True
            if isinstance(part, ast.Call):
                name = dotted(part.func)
                if _is_end(part):
                    return True
                if name in self.functions and name not in seen:
                    seen.add(name)
                    if self.may_end(self.functions[name], seen):
                        return True
        return False

    def evaluate_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.evaluate(node)

    def evaluate(self, node: ast.AST) -> None:
        """Follow the calls that the evaluation of an expression certainly makes."""
        if self.is_over:
            return
        skipped: Sequence[ast.AST] = ()
        if isinstance(node, _LATER):
            skipped = (node,)
        elif isinstance(node, ast.IfExp):
            self.evaluate(node.test)
            skipped = (node.body, node.orelse)
        elif isinstance(node, ast.BoolOp):
            self.evaluate(node.values[0])
            skipped = node.values[1:]
        else:
            self.evaluate_all(ast.iter_child_nodes(node))
        self.perhaps_called(skipped)
        self.ends = self.ends or any(self.may_end(part, set()) for part in skipped)
        if isinstance(node, ast.Call) and not self.is_over:
            self.called(node)

    def perhaps_called(self, nodes: Iterable[ast.AST]) -> None:
        """Follow the program's own functions that an expression calls which may not be evaluated."""
        for node in nodes:
            for part in walk(node):
                name = dotted(part.func) if isinstance(part, ast.Call) else ""
                if name in self.functions and name not in self.running:
                    self.running.append(name)
                    self.all(self.functions[name].body, sure=False)
                    self.running.pop()

    def called(self, node: ast.Call) -> None:
        name = dotted(node.func)
        function = self.functions.get(name)
        if node is self.call:
            self.is_reached, self.is_over = not self.ends, True
        elif function is not None:
            if self.ends or name in self.running or self.bound[name] > 1 or not _runs_at_call(function):
                self.ends = self.ends or self.may_end(function, {name})
                return
            self.running.append(name)
            self.all(function.body, sure=True)
            self.running.pop()
        elif _is_end(node):
            self.ends = True


def _expressions(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield what a statement evaluates itself, without the statements below it."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.withitem):
            yield part.context_expr
        elif isinstance(part, ast.expr) and not (isinstance(node, ast.AnnAssign) and part is node.annotation):
            yield part


def _blocks(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    for node in nodes:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt):
                yield part
            elif isinstance(part, ast.match_case):
                yield from part.body


def _runs_as_main(node: ast.stmt) -> bool | None:
    """Return whether the body of `if __name__ == "__main__":` runs; None for all other statements."""
    test = node.test if isinstance(node, ast.If) else None
    if (
        not isinstance(test, ast.Compare)
        or len(test.ops) != 1
        or not isinstance(test.ops[0], (ast.Eq, ast.NotEq))
    ):
        return None
    sides = (test.left, test.comparators[0])
    if not any(dotted(side) == "__name__" for side in sides):
        return None
    if not any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides):
        return None
    return isinstance(test.ops[0], ast.Eq)


def _runs_at_call(function: ast.FunctionDef) -> bool:
    """Return whether a call runs the body of a function.

    It does if no decorator does anything else with the function, and it is no generator.
    """
    return not function.decorator_list and not any(
        isinstance(part, (ast.Yield, ast.YieldFrom)) for part in walk(function)
    )


def _is_end(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else dotted(function)
    return name in _ENDS
