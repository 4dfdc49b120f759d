"""The value of a name after the statements that bind it, and of a function after those that it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, Final

from verl_doctor.toolkit.collectors.api.decisions.evaluator import Evaluator, section_of
from verl_doctor.toolkit.collectors.api.decisions.import_outcomes import block_fails, import_succeeds
from verl_doctor.toolkit.collectors.api.decisions.operand import THERE
from verl_doctor.toolkit.collectors.api.guards import exits, handler_of, suppressing
from verl_doctor.toolkit.collectors.api.value import Scope
from verl_doctor.toolkit.collectors.api.values import annotation_text
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.source import walk
from verl_doctor.toolkit.sources.python.summary import absolute

END: Final = 1 << 30
"""The line below all statements."""
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")


class Bindings:
    """Follows the statements of a scope. `evaluator` evaluates their expressions."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.reader = evaluator, evaluator.reader

    def value(self, name: str, scope: Scope, line: int) -> Any:
        """Return the value of a name at a line; UNCLEAR if undecided."""
        found = scope.find(name)
        if found is None:
            return UNCLEAR
        home, entries = found
        if home.body is None:
            return UNCLEAR
        until = line if home is scope else END
        if name in home.changed:
            self.evaluator.first_only = True
        key = (id(home), f"{name}:{until}")
        if key in self.evaluator.active:
            return UNCLEAR
        self.evaluator.active.add(key)
        try:
            parameter = next((entry for entry in entries if entry.parameter), None)
            begin: Any = MISSING
            if parameter is not None and isinstance(parameter.expression, ast.Constant):
                begin = parameter.expression.value
            elif parameter is not None:
                section = section_of(self.evaluator, name, parameter.annotation)
                begin = UNCLEAR if section is None else section
            value = self.after(home.body, name, until, home, begin)
            return UNCLEAR if value is MISSING else value
        finally:
            self.evaluator.active.discard(key)

    def after(self, body: Iterable[ast.stmt], name: str, until: int, scope: Scope, value: Any) -> Any:
        """Return the value of a name after these statements, or where they reach the line `until`."""
        for node in body:
            if node.lineno >= until:
                break
            if name in self.reader.bound(node):
                value = self._step(node, name, until, scope, value)
        return value

    def _step(self, node: ast.stmt, name: str, until: int, scope: Scope, value: Any) -> Any:
        inside = node.lineno < until <= (node.end_lineno or node.lineno)
        match node:
            case (
                ast.Assign(targets=[ast.Name()], value=given)
                | ast.AnnAssign(target=ast.Name(), value=ast.expr() as given)
            ):
                section = None
                if isinstance(given, ast.Call) and not isinstance(node, ast.Assign):
                    section = section_of(self.evaluator, name, annotation_text(node.annotation))
                return section or self.evaluator.value(given, scope, node.lineno)
            case ast.Import() | ast.ImportFrom():
                return THERE if import_succeeds(node, self.reader) else self._from_other(node, name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return THERE
            case ast.If(test=test, body=then, orelse=otherwise):
                if inside:
                    within = next((part for part in (then, otherwise) if _holds_line(part, until)), [])
                    return self.after(within, name, until, scope, value)
                held = self.evaluator.test(test, scope, node.lineno)
                ways = [then, otherwise] if held is None else [then if held else otherwise]
                return agreed(
                    [
                        self.after(way, name, until, scope, value)
                        for way in ways
                        if held is not None or not exits(way)
                    ]
                )
            case ast.With(body=block) | ast.AsyncWith(body=block):
                bound = any(
                    _stores_name(item.optional_vars, name) for item in node.items if item.optional_vars
                )
                begin = UNCLEAR if bound else value
                handlers = [suppressing(item, self.reader, scope) for item in node.items]
                passes = any(
                    handler is not None and any(map(handler.takes, _IMPORT_ERRORS)) for handler in handlers
                )
                if not inside and passes and block_fails(block, self.reader):
                    return begin
                return self.after(block, name, until, scope, begin)
            case ast.Try():
                return self._tried(node, name, until, scope, value, inside=inside)
        return UNCLEAR

    def _from_other(self, node: ast.Import | ast.ImportFrom, name: str) -> Any:
        """Return the value of a flag that another module of the same tree sets."""
        alias = next((alias for alias in node.names if (alias.asname or alias.name) == name), None)
        if not isinstance(node, ast.ImportFrom) or alias is None:
            return UNCLEAR
        return self.reader.flag(absolute(node, self.reader.module.package), alias.name)

    def _tried(self, node: ast.Try, name: str, until: int, scope: Scope, value: Any, *, inside: bool) -> Any:
        if inside:
            parts = [node.body, node.orelse, node.finalbody, *(part.body for part in node.handlers)]
            within = next((part for part in parts if _holds_line(part, until)), [])
            return self.after(within, name, until, scope, value) if within is node.body else UNCLEAR
        fails = block_fails(node.body, self.reader)
        ways: list[Any] = []
        if fails is not True:
            ways.append(self.after([*node.body, *node.orelse], name, until, scope, value))
        if fails is not False:
            handlers = [(part, handler_of(part, scope)) for part in node.handlers]
            if fails:
                handlers = [entry for entry in handlers if any(map(entry[1].takes, _IMPORT_ERRORS))][:1]
            ways += [
                self.after(part.body, name, until, scope, value)
                for part, handler in handlers
                if not exits(part.body)
            ]
        found = agreed(ways) if ways else UNCLEAR
        return self.after(node.finalbody, name, until, scope, found)

    def returned(self, body: Iterable[ast.stmt], scope: Scope) -> Any:
        """Return what a function returns with this body; UNCLEAR if undecided."""
        for node in body:
            match node:
                case ast.Return(value=value):
                    return None if value is None else self.evaluator.value(value, scope, node.lineno)
                case ast.If(test=test, body=then, orelse=otherwise):
                    held = self.evaluator.test(test, scope, node.lineno)
                    if held is None:
                        return UNCLEAR
                    found = self.returned(then if held else otherwise, scope)
                    if found is not MISSING:
                        return found
                case (
                    ast.Assign()
                    | ast.AnnAssign()
                    | ast.Import()
                    | ast.ImportFrom()
                    | ast.Expr(value=ast.Constant())
                ):
                    continue
                case ast.Try(body=inner, orelse=[], finalbody=[]) if inner and isinstance(
                    inner[-1], ast.Return
                ):
                    found = self.returned(inner, scope)
                    return found if found is not MISSING else UNCLEAR
                case _:
                    return UNCLEAR
        return MISSING


def agreed(values: list[Any]) -> Any:
    """Return the value on which all branches agree.

    Several values that are only known to exist count as equal.
    """
    first = values[0] if values else UNCLEAR
    same = all(value is first or (type(value) is type(first) and value == first) for value in values)
    return first if same else UNCLEAR


def _stores_name(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in walk(node))


def _holds_line(body: list[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)
