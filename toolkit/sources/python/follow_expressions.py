"""Computes expressions from a syntax tree: constants, dictionaries, branches.

Unknown values are `UNCLEAR`.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.sources.python.evaluate import ARITHMETIC, COMPARE, UNCLEAR, applied
from verl_doctor.toolkit.sources.python.follow_values import (
    SOME_TEXT,
    Class,
    Function,
    Instance,
    Link,
    Module,
    Outside,
    Place,
    Table,
    entry_of,
    same,
)
from verl_doctor.toolkit.sources.python.source import SourceTree

_STEPS = 50_000
DEEPEST = 20

Hook = Callable[[str, list[Any], Mapping[str, Any], Place], Any]
"""Evaluates a call of something outside the tree by its full name, positional and keyword arguments."""


class Expressions(ABC):
    """The part of `python.follow.Follow` that runs neither statements nor calls."""

    def __init__(
        self,
        tree: SourceTree,
        environ: Table,
        call: Hook,
        value: Callable[[str], Any] = lambda _: UNCLEAR,
        argument: Any = UNCLEAR,
    ) -> None:
        self.tree, self.environ = tree, environ
        self._hook, self._outside, self._argument = call, value, argument
        self._modules: dict[str, Module | None] = {}
        self._left, self._depth, self._weak = _STEPS, 0, 0
        self._level = 0
        self._module: Module | None = None
        self._found: list[Any] = []
        self._line = 0

    @abstractmethod
    def module(self, name: str) -> Module | None:
        """Run a module of the tree, once; None when it does not exist or cannot be read."""

    @abstractmethod
    def called(self, node: ast.Call, names: Mapping[str, Any]) -> Any:
        """Return the value of a call."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        """Assign a value to a name, to several, or to an entry of a dictionary."""

    @contextmanager
    def _inside(self, module: Module) -> Iterator[None]:
        before, self._module = self._module, module
        level, self._level = self._level, self._weak
        self._depth += 1
        try:
            yield
        finally:
            self._module, self._level = before, level
            self._depth -= 1

    def _here(self) -> Module:
        return self._module or Module("", Path(), {})

    def _package(self) -> str:
        here = self._here()
        return here.name if here.path.name == "__init__.py" else here.name.rpartition(".")[0]

    def _place(self, node: ast.AST) -> Place:
        return str(self._here().path), getattr(node, "lineno", self._line)

    def truth(self, value: Any) -> Any:
        """Return whether a value counts as true, or `UNCLEAR`."""
        if value in (UNCLEAR, SOME_TEXT) or isinstance(value, (Outside, Function, Class, Instance, Module)):
            return UNCLEAR
        if isinstance(value, Table) and value.open and not value:
            return UNCLEAR
        return bool(value)

    def value(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """Return the value of an expression."""
        self._left -= 1
        if self._left < 0:
            return UNCLEAR
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._named(name, names)
            case ast.Attribute(value=inner, attr=name):
                return self._attribute(self.value(inner, names), name)
            case ast.Subscript(value=inner, slice=index):
                return entry_of(self.value(inner, names), self.value(index, names))
            case ast.Dict(keys=keys, values=values):
                return self._table(keys, values, names)
            case ast.DictComp(key=key, value=value, generators=[comprehension]):
                table = self._new()
                for inner_names in self._each(comprehension, names, table):
                    entry = self.value(key, inner_names)
                    if isinstance(entry, str):
                        table.put(entry, self.value(value, inner_names), self._place(node))
                return table
            case (
                ast.ListComp(elt=element, generators=[comprehension])
                | ast.GeneratorExp(elt=element, generators=[comprehension])
            ):
                over = self.value(comprehension.iter, names)
                if not isinstance(over, (list, tuple, Table)):
                    return UNCLEAR
                return [self.value(element, inner) for inner in self._each(comprehension, names, Table())]
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return [self.value(element, names) for element in elements]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                known = self.truth(self.value(operand, names))
                return UNCLEAR if known is UNCLEAR else not known
            case ast.BoolOp(op=op, values=values):
                return self._joined(isinstance(op, ast.And), values, names)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = self.truth(self.value(test, names))
                if known is not UNCLEAR:
                    return self.value(body if known else orelse, names)
                ways = [self.value(body, names), self.value(orelse, names)]
                return ways[0] if same(*ways) else UNCLEAR
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compared([self.value(each, names) for each in (left, *comparators)], ops)
            case ast.BinOp(left=left, op=op, right=right):
                return self._counted(op, self.value(left, names), self.value(right, names))
            case ast.JoinedStr(values=parts):
                texts = [self._part(part, names) for part in parts]
                return UNCLEAR if UNCLEAR in texts else "".join(texts)
            case ast.Call():
                return self.called(node, names)
            case ast.Await(value=value):
                return self.value(value, names)
        return UNCLEAR

    def _named(self, name: str, names: Mapping[str, Any]) -> Any:
        if name in names:
            return self._resolved(names[name])
        here = self._here()
        if name in here.names:
            return self._resolved(here.names[name])
        return Outside(f"builtins.{name}")

    def _resolved(self, value: Any) -> Any:
        """Return what an imported name refers to."""
        if not isinstance(value, Link):
            return value
        name = self.tree.own_name(value.name)
        if name is None:
            return self._from_outside(value.name)
        if self.tree.locate(name) is not None:
            return self.module(name) or UNCLEAR
        module = self.module(name.rpartition(".")[0])
        if module is None:
            return Outside(name)
        return self._attribute(module, name.rpartition(".")[2])

    def _from_outside(self, name: str) -> Any:
        if name == "os.environ":
            return self.environ
        known = self._outside(name)
        return Outside(name) if known is UNCLEAR else known

    def _attribute(self, owner: Any, name: str) -> Any:
        match owner:
            case Outside(name=inner):
                return self._from_outside(f"{inner}.{name}")
            case Module():
                if name in owner.names:
                    return self._resolved(owner.names[name])
                below = self.tree.locate(f"{owner.name}.{name}")
                return (self.module(below.name) if below else None) or Outside(f"{owner.name}.{name}")
            case Table():
                return owner.get(name, UNCLEAR)
            case Instance(kind=kind):
                found = self._method(kind, name)
                return UNCLEAR if found is None else Function(found.node, found.module, owner)
        return UNCLEAR

    def _method(self, kind: Class, name: str, depth: int = 0) -> Function | None:
        """Return a method of a class, or of its bases."""
        for node in kind.node.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                return Function(node, kind.module)
        for base in self.bases(kind) if depth < DEEPEST else ():
            if found := self._method(base, name, depth + 1):
                return found
        return None

    def bases(self, kind: Class) -> list[Class]:
        """Return the classes of the tree that are direct bases of a class."""
        with self._inside(kind.module):
            found = [self.value(base, {}) for base in kind.node.bases]
        return [base for base in found if isinstance(base, Class)]

    def _new(self, content: Mapping[str, Any] | None = None) -> Table:
        """Return a dictionary created at this place."""
        table = Table(content)
        table.level = self._weak
        return table

    def _table(self, keys: list[ast.expr | None], values: list[ast.expr], names: Mapping[str, Any]) -> Table:
        table = self._new()
        for key, value in zip(keys, values, strict=True):
            given = self.value(value, names)
            if key is None:
                table.add(given, self._place(value))
            elif isinstance(name := self.value(key, names), str):
                table.put(name, given, self._place(key))
            else:
                table.open = True
        return table

    def _each(
        self, comprehension: ast.comprehension, names: Mapping[str, Any], table: Table
    ) -> Iterator[dict[str, Any]]:
        """Yield the names inside a comprehension, for each element; `table` becomes open if unknown.

        It becomes open when the names are unknown.
        """
        over = self.value(comprehension.iter, names)
        if not isinstance(over, (list, tuple, Table)):
            table.open = True
            return
        for element in over:
            inner = dict(names)
            self.assign(comprehension.target, element, inner)
            wanted = [self.truth(self.value(test, inner)) for test in comprehension.ifs]
            if UNCLEAR in wanted:
                table.open = True
            elif all(wanted):
                yield inner

    def _joined(self, every: bool, values: Iterable[ast.expr], names: Mapping[str, Any]) -> Any:
        """Evaluate `and` (`every`) or `or`: one operand may decide although another is unclear."""
        last: Any = every
        unclear = False
        for node in values:
            last = self.value(node, names)
            known = self.truth(last)
            if known is UNCLEAR:
                unclear = True
            elif known is not every:
                return last if not unclear or isinstance(last, bool) else UNCLEAR
        return UNCLEAR if unclear else last

    def _compared(self, values: list[Any], ops: Iterable[ast.cmpop]) -> Any:
        found = []
        for place, op in enumerate(ops):
            left, right = values[place], values[place + 1]
            if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Table) and right.open:
                return UNCLEAR
            if any(isinstance(side, (Outside, Function, Class, Instance, Module)) for side in (left, right)):
                return UNCLEAR
            if SOME_TEXT in (left, right) and None not in (left, right):
                return UNCLEAR
            found.append(applied(COMPARE[type(op)], left, right))
        return UNCLEAR if UNCLEAR in found else all(found)

    def _counted(self, op: ast.operator, left: Any, right: Any) -> Any:
        return applied(ARITHMETIC[type(op)], left, right) if type(op) in ARITHMETIC else UNCLEAR

    def _part(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        value = (
            self.value(node.value, names) if isinstance(node, ast.FormattedValue) else self.value(node, names)
        )
        plain = isinstance(node, ast.Constant) or (
            isinstance(node, ast.FormattedValue) and node.format_spec is None and node.conversion == -1
        )
        return str(value) if plain and isinstance(value, (str, int, bool)) else UNCLEAR
