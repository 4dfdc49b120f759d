"""Finds what a dotted name is in source trees: classes with bases and methods, functions, and constants."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.source import SourceTree, dotted, parsed

_DEEPEST = 12  # of imports that pass a name on, and of base classes
_Binding = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr | tuple[str, str]
"""A definition, a value, or the module and the name of an import."""


@dataclass(frozen=True)
class Module:
    """A parsed module."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether relative imports start from the module itself."""
        return self.path.name == "__init__.py"

    @cached_property
    def bound(self) -> tuple[Mapping[str, list[_Binding]], list[str]]:
        """What binds each name of the module, and the modules of which it imports everything."""
        bound: dict[str, list[_Binding]] = {}
        stars: list[str] = []
        for part in self.tree.body:
            match part:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    bound.setdefault(name, []).append(part)
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    bound.setdefault(name, []).append(value)
                case ast.ImportFrom():
                    base = _imported(part, self.name, is_package=self.is_package)
                    for alias in part.names:
                        if alias.name == "*":
                            stars.append(base)
                        else:
                            bound.setdefault(alias.asname or alias.name, []).append((base, alias.name))
        return bound, stars


Modules = dict[str, Module | None]
"""Parsed modules by name, None for those that do not exist or cannot be parsed."""


@dataclass(frozen=True)
class ClassNode:
    """A class and the module in which it is defined."""

    node: ast.ClassDef
    module: str


@dataclass(frozen=True)
class FunctionNode:
    """A function, its module, and the object that it is bound to.

    `owner` is the defining class; `around` are an outer function's names.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef
    module: str
    bound: Any = None
    owner: ClassNode | None = None
    around: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices:
    """The values of a `Literal[...]`."""

    values: tuple[Any, ...]


class Definitions:
    """What the modules of several source trees define.

    The first tree is the program's own, the others are libraries.

    `modules` are those that were already read. `evaluate` returns the value of a literal in a module.
    """

    def __init__(
        self, trees: Iterable[SourceTree], modules: Modules | None, evaluate: Callable[[ast.expr, str], Any]
    ) -> None:
        self._trees = tuple(trees)
        self._modules: Modules = {} if modules is None else modules
        self._evaluate = evaluate

    def named(self, name: str) -> Any:
        """Return what a dotted name refers to: a class, a function, a constant; `UNCLEAR` where unknown."""
        steps = name.split(".")
        for end in range(len(steps), 0, -1):
            if self._module(".".join(steps[:end])) is None:
                continue
            found: Any = UNCLEAR
            for place, step in enumerate(steps[end:]):
                found = (
                    self.in_module(".".join(steps[:end]), step) if not place else self.attribute(found, step)
                )
            return found
        return UNCLEAR

    def place(self, module: str, line: int) -> str:
        """Return a line of a module as "path:line"."""
        source = self._module(module)
        return f"{source.path if source else module}:{line}"

    def is_foreign(self, owner: ClassNode) -> bool:
        """Return whether a class belongs to a library, whose constructor checks what the tree passes to it.

        That is the first tree.
        """
        return self._trees[0].own_name(owner.module) is None

    def in_module(self, module: str, name: str, depth: int = 0) -> Any:
        """Return what a name refers to in a module, through its imports.

        `UNCLEAR` where unknown or bound more than once.
        """
        source = self._module(module)
        if source is None or depth > _DEEPEST:
            return UNCLEAR
        bound, stars = source.bound
        found = [self._value_of(part, module, depth) for part in bound.get(name, ())]
        if not found and self._module(f"{module}.{name}") is None:
            known = (self.in_module(base, name, depth + 1) for base in stars)
            return next((value for value in known if value is not UNCLEAR), UNCLEAR)
        return found[0] if len(found) == 1 else UNCLEAR

    def _value_of(self, part: _Binding, module: str, depth: int) -> Any:
        match part:
            case ast.ClassDef():
                return ClassNode(part, module)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return UNCLEAR if part.decorator_list else FunctionNode(part, module)
            case ast.expr():
                return self._constant(part, module)
        base, original = part
        return self.in_module(base, original, depth + 1)

    def imported(self, node: ast.ImportFrom, module: str) -> str:
        """Return the full name of the module from which a statement of this module imports."""
        source = self._module(module)
        return _imported(node, module, is_package=source is not None and source.is_package)

    def bases(self, owner: ClassNode, depth: int = 0) -> Iterator[ClassNode]:
        """Yield a class and its known bases, the nearest first."""
        yield owner
        for base in owner.node.bases:
            above = self._resolved(dotted(base), owner.module)
            if isinstance(above, ClassNode) and depth < _DEEPEST:
                yield from self.bases(above, depth + 1)

    def method(self, owner: ClassNode, name: str, *, above: ClassNode | None = None) -> FunctionNode | None:
        """Return a method of a class; with `above`, the next one after that class."""
        order = list(self.bases(owner))
        if above is not None:
            order = order[order.index(above) + 1 :] if above in order else []
        for class_node in order:
            for part in class_node.node.body:
                if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name == name:
                    return FunctionNode(part, class_node.module, owner=class_node)
        return None

    def attribute(self, value: Any, name: str) -> Any:
        """Return a class's constant, a member of its enumeration of texts, or its static method.

        `UNCLEAR` for anything else.
        """
        if not isinstance(value, ClassNode):
            return UNCLEAR
        texts = {dotted(base).rpartition(".")[2] for base in value.node.bases}
        for part in value.node.body:
            match part:
                case ast.Assign(targets=[ast.Name(id=bound)], value=ast.Constant(value=constant)) if (
                    bound == name
                ):
                    return constant if "Enum" not in texts or "str" in texts else UNCLEAR
        method = self.method(value, name)
        if method is not None and [dotted(mark) for mark in method.node.decorator_list] == ["staticmethod"]:
            return FunctionNode(method.node, method.module, owner=method.owner)
        return UNCLEAR

    def _resolved(self, name: str, module: str) -> Any:
        first, *rest = name.split(".")
        found = self.in_module(module, first)
        for step in rest:
            found = self.attribute(found, step)
        return found

    def _module(self, name: str) -> Module | None:
        if name not in self._modules:
            self._modules[name] = None
            for tree in self._trees:
                own = tree.own_name(name)
                file = tree.locate(own) if own else None
                if file is None or not str(file.path).endswith(".py"):
                    continue
                if found := parsed(file.path):
                    self._modules[name] = Module(name, file.path, found)
        return self._modules[name]

    def _constant(self, value: ast.expr, module: str) -> Any:
        match value:
            case ast.Subscript(value=target, slice=inner) if dotted(target).rpartition(".")[2] == "Literal":
                parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                values = [part.value for part in parts if isinstance(part, ast.Constant)]
                return Choices(tuple(values)) if len(values) == len(parts) else UNCLEAR
            case ast.List(elts=[]) | ast.Dict(keys=[]):
                return UNCLEAR  # a registry, which decorators fill
            case ast.Constant() | ast.List() | ast.Tuple() | ast.Set() | ast.Dict():
                return self._evaluate(value, module)
        return UNCLEAR


def _imported(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    steps = module.split(".")
    above = steps[: len(steps) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])
