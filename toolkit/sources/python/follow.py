"""Follows a function's effects on dictionaries and the environment through its syntax tree, as Python does.

It follows them as Python would run it.

For sources that cannot be imported. What is known is computed: constants, dictionaries, `os.environ`,
branches, loops over known values, calls of functions of the same tree. Everything else is `UNCLEAR`. Effects
under an unclear condition are *weak*: they make unclear whatever they would change. A `try` is assumed to
succeed, and modules of the tree are run on first use.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.follow_calls import Calls
from verl_doctor.toolkit.sources.python.follow_expressions import DEEPEST
from verl_doctor.toolkit.sources.python.follow_values import Class, Function, Link, Module, Table, same
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file
from verl_doctor.toolkit.sources.python.summary import absolute


class _Return(Exception):  # noqa: N818 - a jump, no mistake
    pass


class _Jump(Exception):  # noqa: N818 - a jump, no mistake
    """`break`, or `continue` when `again`."""

    def __init__(self, again: bool) -> None:
        self.again = again


class Arrived(Exception):  # noqa: N818 - a jump, no mistake
    """Raised by a hook: the target of the search was found, so nothing further is run."""


@functools.lru_cache(maxsize=64)
def _parsed(path: Path, _: int) -> ast.Module | Unreadable:
    """Return the syntax tree of a file at this modification time: several runs use the same modules."""
    return parse_file(path)


class Follow(Calls):
    """One run. `environ` is the environment of the process, which the code may change.

    `call` evaluates calls of functions outside the tree, `value` resolves other external names; both return
    `UNCLEAR` when unknown. `made` receives each call with its arguments.
    """

    def module(self, name: str) -> Module | None:
        """Run a module of the tree, once; None when it does not exist or cannot be read."""
        if name not in self._modules:
            self._modules[name] = None
            file = self.tree.locate(name)
            if file is not None and file.kind in ("module", "package"):
                self._modules[name] = self._run_file(file.path, name, name)
        return self._modules[name]

    def program(self, path: Path, name: str) -> Module | None:
        """Run a file as Python runs a program; `name` is its import name."""
        return self._run_file(path, name, "__main__")

    def _run_file(self, path: Path, name: str, called: str) -> Module | None:
        try:
            parsed = _parsed(path, path.stat().st_mtime_ns)
        except OSError:
            return None
        if isinstance(parsed, Unreadable):
            return None
        module = Module(name, path, {"__name__": called})
        self._modules[name] = module
        with self._inside(module):
            self._run(parsed.body, module.names)
        return module

    def call(
        self, function: Function, given: Iterable[Any] = (), words: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function. Parameters that are not given have their defaults, or are unclear."""
        if self._depth > DEEPEST:
            return UNCLEAR
        with self._inside(function.module):
            names = self._bound(function, list(given), dict(words or {}))
            before, self._found = self._found, []
            try:
                self._run(function.node.body, names)
                self._found.append(None)
            except _Return:
                pass
            finally:
                found, self._found = self._found, before
        return found[0] if all(same(found[0], result) or found[0] is result for result in found) else UNCLEAR

    def _bound(self, function: Function, given: list[Any], words: dict[str, Any]) -> dict[str, Any]:
        parameters = function.node.args
        places = [*parameters.posonlyargs, *parameters.args]
        defaults = [None] * (len(places) - len(parameters.defaults)) + list(parameters.defaults)
        pairs = [
            *zip(places, defaults, strict=True),
            *zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True),
        ]
        names = {argument.arg: UNCLEAR if node is None else self.value(node, {}) for argument, node in pairs}
        if function.owner is not None:
            given = [function.owner, *given]
        elif function.node.decorator_list and places and places[0].arg not in words:
            given = given or [self._argument]
        names.update(zip((argument.arg for argument in places), given, strict=False))
        names.update({name: value for name, value in words.items() if name in names})
        return names

    def _run(self, body: Iterable[ast.stmt], names: dict[str, Any]) -> None:
        for node in body:
            self._left -= 1
            if self._left > 0:
                self._line = node.lineno
                self._statement(node, names)

    @contextmanager
    def _weakly(self, *, weak: bool) -> Iterator[None]:
        self._weak += weak
        try:
            yield
        finally:
            self._weak -= weak

    def _statement(self, node: ast.stmt, names: dict[str, Any]) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                given = self.value(value, names)
                for target in targets:
                    self.assign(target, given, names)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.value(value, names), names)
            case ast.AugAssign(target=target, op=op, value=value):
                before = self.value(target, names)
                self.assign(target, self._counted(op, before, self.value(value, names)), names)
            case ast.Expr(value=value):
                self.value(value, names)
            case ast.Return(value=value):
                self._found.append(None if value is None else self.value(value, names))
                if self._weak == self._level:
                    raise _Return
            case ast.Raise():
                if self._weak == self._level:
                    self._found.append(UNCLEAR)
                    raise _Return
            case ast.If(test=test):
                self._branch(self.truth(self.value(test, names)), node, names)
            case ast.For() | ast.AsyncFor():
                self._loop(node, names)
            case ast.While():
                with self._weakly(weak=True):
                    self._run(node.body, names)
            case ast.Break() | ast.Continue():
                if self._weak == self._level:
                    raise _Jump(isinstance(node, ast.Continue))
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.value(item.context_expr, names)
                self._run(node.body, names)
            case ast.Try():
                self._run([*node.body, *node.orelse, *node.finalbody], names)
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Subscript):
                        owner, key = self.value(target.value, names), self.value(target.slice, names)
                        if isinstance(owner, Table) and isinstance(key, str):
                            owner.take(key, self._place(target), weakly=self._weak > owner.level)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names[node.name] = Function(node, self._here())
            case ast.ClassDef():
                names[node.name] = Class(node, self._here())
            case ast.Import(names=imported):
                for alias in imported:
                    first = alias.name.partition(".")[0]
                    names[alias.asname or first] = Link(alias.name if alias.asname else first)
            case ast.ImportFrom(names=imported):
                origin = absolute(node, self._package())
                for alias in imported:
                    names[alias.asname or alias.name] = Link(f"{origin}.{alias.name}")

    def _branch(self, known: Any, node: ast.If, names: dict[str, Any]) -> None:
        if known is UNCLEAR:
            with self._weakly(weak=True):
                self._run(node.body, names)
                self._run(node.orelse, names)
        else:
            self._run(node.body if known else node.orelse, names)

    def _loop(self, node: ast.For | ast.AsyncFor, names: dict[str, Any]) -> None:
        over = self.value(node.iter, names)
        known = isinstance(over, (list, tuple, Table))
        with self._weakly(weak=not known):
            for element in list(over) if known else [UNCLEAR]:
                self.assign(node.target, element, names)
                try:
                    self._run(node.body, names)
                except _Jump as jump:
                    if not jump.again:
                        break

    def assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        """Assign a value to a name, to several, or to an entry of a dictionary."""
        match target:
            case ast.Name(id=name):
                old = names.get(name, value)
                names[name] = value if self._weak == self._level else self._either(old, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                fits = isinstance(value, (list, tuple)) and len(value) == len(targets)
                for place, each in enumerate(targets):
                    self.assign(each, value[place] if fits else UNCLEAR, names)
            case ast.Subscript(value=inner, slice=index):
                owner, key = self.value(inner, names), self.value(index, names)
                if isinstance(owner, Table):
                    if isinstance(key, str):
                        owner.put(key, value, self._place(target), weakly=self._weak > owner.level)
                    else:
                        owner.open = True

    def _either(self, first: Any, other: Any) -> Any:
        """Return what is known of a value that is one of two."""
        if first is other or same(first, other):
            return first
        if not (isinstance(first, Table) and isinstance(other, Table)):
            return UNCLEAR
        both = self._new(first)
        both.open = first.open or other.open
        for key in {**first, **other}:
            if key not in first or key not in other or not same(first[key], other[key]):
                both.put(key, UNCLEAR, other.places.get(key) or first.places.get(key, ("", 0)))
        return both
