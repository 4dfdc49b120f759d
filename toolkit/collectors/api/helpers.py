"""Results of verl's own helpers, such as `vllm_at_least("0.11")`, and flags that its other modules set."""

from __future__ import annotations

import ast
from typing import Any

from verl_doctor.toolkit.collectors.api.decisions.bindings import END
from verl_doctor.toolkit.collectors.api.decisions.conditions import Decisions
from verl_doctor.toolkit.collectors.api.decisions.evaluation import Evaluation
from verl_doctor.toolkit.collectors.api.decisions.evaluator import Evaluator
from verl_doctor.toolkit.collectors.api.scopes import Scopes
from verl_doctor.toolkit.collectors.api.value import Entry, Scope
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.source import parsed, walk
from verl_doctor.toolkit.sources.python.symbols import Function, Module

_DEEPEST = 3
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Helpers:
    """Evaluates functions and flags of verl's modules. `depth` counts nested helper calls."""

    def __init__(self, reader: ValueReader, tree: ast.Module | None = None, depth: int = 0) -> None:
        self.reader, self.depth = reader, depth
        self._trees: dict[str, ast.Module | None] = {reader.module.name: tree}
        self._known: dict[str, tuple[ValueReader, Scope, ast.Module] | None] = {}

    def flag(self, module: str, name: str) -> Any:
        """Return the value to which another module of the same tree binds a name."""
        found = self._inside(self.reader.sources.own_name(module) or "")
        if found is None:
            return UNCLEAR
        reader, scope, _ = found
        return Evaluation(reader).value(ast.Name(name, ast.Load(), lineno=END, col_offset=0), scope, END)

    def is_unbound(self, module: str, name: str) -> bool:
        """Return whether a module certainly does not bind a name, at least with the installed libraries."""
        found = self._inside(module)
        return found is not None and Decisions(found[0]).is_unbound(found[2].body, name, found[1])

    def return_value(self, call: ast.Call, scope: Scope, by: Evaluator) -> Any:
        """Return what a helper returns for these arguments, if all of them are known."""
        callee = self.reader.value(call.func, scope)
        if not isinstance(callee, Function) or callee.module.partition(".")[0] in self.reader.versions:
            return UNCLEAR
        values = [by.value(argument, scope, call.lineno) for argument in call.args]
        named = {word.arg: by.value(word.value, scope, call.lineno) for word in call.keywords}
        if not all(isinstance(value, (str, int, type(None))) for value in [*values, *named.values()]):
            return UNCLEAR
        found = self._inside(callee.module)
        if found is None or None in named:
            return UNCLEAR
        reader, home, tree = found
        node = next(
            (part for part in tree.body if isinstance(part, _FunctionNode) and part.name == callee.name), None
        )
        if node is None or isinstance(node, ast.AsyncFunctionDef):
            return UNCLEAR
        inner = Scopes(reader).of_function(node, home)
        places = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]]
        defaults = dict(zip(reversed(places), reversed(node.args.defaults), strict=False))
        given = {
            **dict(zip(places, values, strict=False)),
            **{str(name): value for name, value in named.items()},
        }
        for name in [*places, *(argument.arg for argument in node.args.kwonlyargs)]:
            default = defaults.get(name)
            if name in given:
                inner.names[name] = [Entry(expression=_constant(given[name], node), parameter=True)]
            elif isinstance(default, ast.Constant):
                inner.names[name] = [Entry(expression=default, parameter=True)]
        answer = Evaluation(reader).names.returned(node.body, inner)
        return UNCLEAR if answer is MISSING else answer

    def _inside(self, name: str) -> tuple[ValueReader, Scope, ast.Module] | None:
        """A reader for another module, its names and its tree; None for a library's, or if unreadable."""
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> tuple[ValueReader, Scope, ast.Module] | None:
        sources = self.reader.sources
        file, module = sources.file_of(name), sources.module(name)
        if name.partition(".")[0] in self.reader.versions or file is None or not isinstance(module, Module):
            return None
        if self.depth >= _DEEPEST:
            return None
        if self._trees.get(name) is None:
            self._trees[name] = parsed(file.path)
        tree = self._trees[name]
        if tree is None:
            return None
        reader = ValueReader(sources, module, self.reader.versions, self.reader.around)
        scopes = Scopes(reader)
        deeper = Helpers(reader, tree, self.depth + 1)
        reader.flag, reader.return_value = deeper.flag, deeper.return_value
        return reader, scopes.of_module(tree, list(walk(tree))), tree


def _constant(value: Any, near: ast.AST) -> ast.Constant:
    return ast.copy_location(ast.Constant(value), near)
