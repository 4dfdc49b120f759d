"""The names that a function or module binds, and how, before its uses are read."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator

from verl_doctor.toolkit.collectors.api.guards import judge
from verl_doctor.toolkit.collectors.api.value import (
    NOTHING,
    Bound,
    Entry,
    Instance,
    LocalClass,
    Scope,
    SelfOf,
    Value,
)
from verl_doctor.toolkit.collectors.api.values import ValueReader, annotation_text
from verl_doctor.toolkit.sources.python.answers import Answer
from verl_doctor.toolkit.sources.python.source import is_none, parsed, statements, walk
from verl_doctor.toolkit.sources.python.summary import absolute
from verl_doctor.toolkit.sources.python.symbols import Class, Module

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class Scopes:
    """Builds each scope once, on demand.

    `patched` are attribute names that the module sets on other packages' objects.
    """

    def __init__(self, reader: ValueReader) -> None:
        self.reader = reader
        self.patched: set[str] = set()
        self._has_walrus = False
        self._functions: dict[int, Scope] = {}
        self._classes: dict[str, LocalClass] = {}
        self._class_of: dict[int, LocalClass] = {}

    def of_module(self, tree: ast.Module, nodes: Iterable[ast.AST]) -> Scope:
        """Return the module's own names; `nodes` are all that it holds."""
        every = list(nodes)
        self._has_walrus = any(isinstance(node, ast.NamedExpr) for node in every)
        changed = frozenset(name for node in every if isinstance(node, ast.Global) for name in node.names)
        scope = Scope(None, body=tree.body, changed=changed)
        self._fill(tree.body, scope)
        return scope

    def of_function(self, node: _FunctionNode, parent: Scope, place: ast.expr | None = None) -> Scope:
        """Parameters and local names of a function.

        `place` is the method of a class in place of which it is put.
        """
        if id(node) in self._functions:
            return self._functions[id(node)]
        scope = self._functions[id(node)] = Scope(parent, body=node.body)
        local = self._class_of.get(id(node))
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        is_bound = local is not None and not any(
            isinstance(part, ast.Name) and part.id in {"staticmethod", "classmethod"}
            for part in node.decorator_list
        )
        for index, argument in enumerate(arguments):
            if index == 0 and is_bound and local is not None:
                scope.bind(argument.arg, Entry(value=SelfOf(local), parameter=True))
            elif index == 0 and argument.annotation is None and place is not None:
                scope.bind(argument.arg, Entry(value=self._instance(place, parent), parameter=True))
            else:
                scope.bind(
                    argument.arg, Entry(annotation=annotation_text(argument.annotation), parameter=True)
                )
        for rest in (node.args.vararg, node.args.kwarg):
            if rest is not None:
                scope.bind(rest.arg, Entry(parameter=True))
        self._fill(node.body, scope)
        return scope

    def _instance(self, place: ast.expr, scope: Scope) -> Value:
        """Return the instance that a function put in place of a method receives.

        None where it replaces something else.
        """
        if not isinstance(place, ast.Attribute):
            return None
        owner, replaced = (self.reader.value(part, scope) for part in (place.value, place))
        is_method = isinstance(replaced, Bound) and replaced.function.role == "method"
        return Instance(owner) if isinstance(owner, Class) and is_method else None

    def of_lambda(self, node: ast.Lambda, parent: Scope) -> Scope:
        """Return the parameters of a lambda."""
        scope = Scope(parent)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            scope.bind(argument.arg, Entry())
        for rest in (node.args.vararg, node.args.kwarg):
            if rest is not None:
                scope.bind(rest.arg, Entry())
        return scope

    def of_comprehension(self, node: _Comprehension, parent: Scope) -> Scope:
        """Return the loop variables of a comprehension."""
        scope = Scope(parent)
        for generator in node.generators:
            for name in _bound(generator.target):
                scope.bind(name, Entry())
        return scope

    def constant(self, module: str, name: str) -> Value:
        """Return the value of a name imported from another examined module, such as `vllm_version`."""
        reader = self.reader
        own = reader.sources.own_name(module) or ""
        file, other = reader.sources.file_of(own), reader.sources.module(own)
        if own.partition(".")[0] in reader.versions or file is None or not isinstance(other, Module):
            return None
        tree = parsed(file.path)
        if tree is None:
            return None
        inner = ValueReader(reader.sources, other, reader.versions, reader.around)
        scope = Scopes(inner).of_module(tree, list(walk(tree)))
        if scope.names.get(name) == []:  # nothing but None, in the branches that are run
            return NOTHING
        return inner.value(ast.Name(name, ast.Load()), scope)

    def enter_class(self, node: ast.ClassDef, scope: Scope) -> None:
        """Record what the methods of a class store on `self`."""
        local = LocalClass(node, lambda method: self.of_function(method, scope))
        local.bases = tuple(
            self._classes[base.id]
            for base in node.bases
            if isinstance(base, ast.Name) and base.id in self._classes
        )
        self._classes[node.name] = local
        methods = [part for part in node.body if isinstance(part, _Functions)]
        for method in methods:
            self._class_of[id(method)] = local
        for method in methods:
            if method.args.args:
                inner = self.of_function(method, scope)
                for name, expression, annotation in _stores(method, method.args.args[0].arg):
                    local.stored.setdefault(name, []).append((expression, annotation, inner))

    def _fill(self, body: Iterable[ast.stmt], scope: Scope) -> None:
        self.reader.building += 1
        try:
            self._block(body, scope)
        finally:
            self.reader.building -= 1

    def _block(self, body: Iterable[ast.stmt], scope: Scope) -> None:
        """Bind the names of the statements, leaving out branches that are dead according to the trees."""
        for node in body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    for name, entry in _import_entries(node, self.reader):
                        scope.bind(name, entry)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    scope.bind(name, self._definition(name, scope))
                case ast.If(test=test, body=then, orelse=otherwise):
                    holds = judge(test, self.reader, scope).holds
                    if holds is not False:
                        self._block(then, scope)
                    if holds is not True:
                        self._block(otherwise, scope)
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._assign(target, value, scope)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    scope.bind(name, Entry(annotation=annotation_text(annotation)))
                case _:
                    loop = (node.target, node.iter) if isinstance(node, ast.For) else None
                    for name in _other_bindings(node):
                        scope.bind(name, Entry(loop=loop))
                    for block in ("body", "orelse", "finalbody"):
                        self._block(getattr(node, block, []), scope)
                    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                        self._block(part.body, scope)
            for name, value in _walrus(node) if self._has_walrus else ():
                scope.bind(name, Entry(expression=value))

    def _definition(self, name: str, scope: Scope) -> Entry:
        """Return the entry for a class or function of the module itself; a local definition stays unknown."""
        if scope.parent is not None:
            return Entry()
        return Entry(answer=lambda: self.reader.sources.member(self.reader.module, name))

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            if not is_none(value):  # a name that is None until it gets its value
                scope.bind(target.id, Entry(expression=value))
            elif target.id not in scope.names:
                scope.names[target.id] = []
        else:
            for name in _bound(target):
                scope.bind(name, Entry())


def _import_entries(node: ast.Import | ast.ImportFrom, reader: ValueReader) -> Iterator[tuple[str, Entry]]:
    """Yield the names that an import statement binds."""
    sources = reader.sources
    if isinstance(node, ast.Import):
        for alias in node.names:
            target = alias.name if alias.asname else alias.name.split(".")[0]
            yield (alias.asname or target), Entry(answer=_later(sources.import_module, target))
        return
    source = absolute(node, reader.module.package)
    for alias in node.names:
        if alias.name != "*":
            answer = _later(sources.import_name, source, alias.name)
            yield (alias.asname or alias.name), Entry(answer=answer, origin=(source, alias.name))


def _later(function: Callable[..., Answer], *arguments: str) -> Callable[[], Answer]:
    return functools.cache(lambda: function(*arguments))


def _bound(target: ast.expr) -> Iterator[str]:
    for node in walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _other_bindings(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.For(target=target) | ast.AsyncFor(target=target) | ast.AugAssign(target=target):
            yield from _bound(target)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    yield from _bound(item.optional_vars)
        case ast.Try(handlers=handlers):
            yield from (handler.name for handler in handlers if handler.name)
        case ast.Match(cases=cases):
            for case in cases:
                for part in walk(case.pattern):
                    name = getattr(part, "name", None) or getattr(part, "rest", None)
                    if isinstance(name, str):
                        yield name


def _walrus(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            for part in walk(child):
                if isinstance(part, ast.NamedExpr) and isinstance(part.target, ast.Name):
                    yield part.target.id, part.value


def _stores(method: _FunctionNode, this: str) -> Iterator[tuple[str, ast.expr | None, str]]:
    """Yield the attributes that a method stores on its first parameter: name, expression, annotation."""
    for node in statements(method):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    match target:
                        case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner == this:
                            yield attr, value, ""
                        case ast.Tuple() | ast.List():
                            for part in walk(target):
                                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                                    yield part.attr, None, ""
            case ast.AnnAssign(
                target=ast.Attribute(value=ast.Name(id=owner), attr=attr), annotation=annotation
            ):
                if owner == this:
                    yield attr, None, annotation_text(annotation)
            case ast.AugAssign(target=ast.Attribute(value=ast.Name(id=owner), attr=attr)) if owner == this:
                yield attr, None, ""
