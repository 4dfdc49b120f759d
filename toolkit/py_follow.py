"""What a function does to dictionaries and to the environment, followed through its syntax tree as Python would run it.

For sources that cannot be imported. What is known is computed: constants, dictionaries, `os.environ`, branches, loops over known
things, calls of functions of the same tree. All else is `UNCLEAR`. What stands under an unclear condition is done *weakly*: it
leaves unclear whatever it would change. A `try` is taken to succeed, and modules of the tree are run when something of
them is first asked for.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.py_evaluate import ARITHMETIC, COMPARE, UNCLEAR, applied
from verl_doctor.toolkit.py_source import SourceTree, Unreadable, parse, read
from verl_doctor.toolkit.py_summary import absolute

_STEPS = 50_000
_DEEPEST = 20

Place = tuple[str, int]
"""A file and a line."""


class Table(dict[str, Any]):
    """A dictionary of the program. `places` says where each entry was written; an `open` one may have others too.

    `level` is how many unclear conditions stood around its creation: only what stands under more of them is weak.
    """

    def __init__(self, content: Mapping[str, Any] | None = None) -> None:
        super().__init__(content or {})
        self.places: dict[str, Place] = dict(getattr(content, "places", {}))
        self.open: bool = getattr(content, "open", False)
        self.level = 0

    def put(self, key: str, value: Any, place: Place, *, weakly: bool = False) -> None:
        """Set an entry."""
        if weakly and not (key in self and same(self[key], value)):
            value = UNCLEAR
        self[key], self.places[key] = value, place

    def take(self, key: str, place: Place, *, weakly: bool = False) -> None:
        """Remove an entry."""
        if key in self and weakly:
            self.put(key, UNCLEAR, place)
        elif key in self:
            del self[key]
            self.places.pop(key, None)

    def add(self, other: Any, place: Place, *, weakly: bool = False) -> None:
        """Take over all entries of another; of something unclear it is not known which they are."""
        if not isinstance(other, Table):
            self.open = True
            return
        self.open = self.open or other.open
        for key, value in other.items():
            self.put(key, value, other.places.get(key, place), weakly=weakly)


@dataclass(frozen=True)
class Outside:
    """Something of another package, by its full name ("ray.init")."""

    name: str


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the tree, with the object whose method it is."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    module: Module
    owner: Instance | None = None


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the tree."""

    node: ast.ClassDef
    module: Module


@dataclass(frozen=True, eq=False)
class Instance:
    """An object of a class of the tree; `kind` is where its methods are looked for first."""

    kind: Class


@dataclass(frozen=True, eq=False)
class Module:
    """A module that was run: its name, file and global names."""

    name: str
    path: Path
    names: dict[str, Any]


@dataclass(frozen=True)
class _Link:
    """A name that an import binds, not resolved yet."""

    name: str


class _Return(Exception):  # noqa: N818 - a jump, no mistake
    pass


class _Jump(Exception):  # noqa: N818 - a jump, no mistake
    """`break`, or `continue` when `again`."""

    def __init__(self, again: bool) -> None:
        self.again = again


class SomeText:
    """A text of which only that it is there is known."""

    def __repr__(self) -> str:
        return "SOME_TEXT"


SOME_TEXT = SomeText()


class Arrived(Exception):  # noqa: N818 - a jump, no mistake
    """Raised by a hook: what was looked for has been seen, so nothing further is run."""


Hook = Callable[[str, list[Any], Mapping[str, Any], Place], Any]
"""Answers a call of something outside of the tree by its full name, positional and keyword arguments."""


def same(one: Any, other: Any) -> bool:
    """Whether two values are known to be equal."""
    return UNCLEAR not in (one, other) and type(one) is type(other) and bool(one == other)


class Follow:
    """One run. `environ` is the environment of the process, which the code may change.

    `call` answers calls of functions outside of the tree, `value` says what other outside names stand for; both give `UNCLEAR`
    when they do not know. `made` is told of each call with what it is given.
    """

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

    def module(self, name: str) -> Module | None:
        """Run a module of the tree, once; None when it is not there or cannot be read."""
        if name not in self._modules:
            self._modules[name] = None
            file = self.tree.locate(name)
            if file is not None and file.kind in ("module", "package"):
                self._modules[name] = self._run_file(file.path, name, name)
        return self._modules[name]

    def program(self, path: Path, name: str) -> Module | None:
        """Run a file as Python runs a program; `name` is that under which it would be imported."""
        return self._run_file(path, name, "__main__")

    def _run_file(self, path: Path, name: str, called: str) -> Module | None:
        source = read(path)
        parsed = parse(source, path) if isinstance(source, bytes) else source
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
        if self._depth > _DEEPEST:
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
        return found[0] if all(same(found[0], one) or found[0] is one for one in found) else UNCLEAR

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

    def _bound(self, function: Function, given: list[Any], words: dict[str, Any]) -> dict[str, Any]:
        asked = function.node.args
        places = [*asked.posonlyargs, *asked.args]
        defaults = [None] * (len(places) - len(asked.defaults)) + list(asked.defaults)
        pairs = [*zip(places, defaults, strict=True), *zip(asked.kwonlyargs, asked.kw_defaults, strict=True)]
        names = {one.arg: UNCLEAR if node is None else self.value(node, {}) for one, node in pairs}
        if function.owner is not None:
            given = [function.owner, *given]
        elif function.node.decorator_list and places and places[0].arg not in words:
            given = given or [self._argument]
        names.update(zip((one.arg for one in places), given, strict=False))
        names.update({name: value for name, value in words.items() if name in names})
        return names

    # Statements

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
                    self._assign(target, given, names)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.value(value, names), names)
            case ast.AugAssign(target=target, op=op, value=value):
                before = self.value(target, names)
                self._assign(target, self._counted(op, before, self.value(value, names)), names)
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
                    names[alias.asname or first] = _Link(alias.name if alias.asname else first)
            case ast.ImportFrom(names=imported):
                origin = absolute(node, self._package())
                for alias in imported:
                    names[alias.asname or alias.name] = _Link(f"{origin}.{alias.name}")

    def _here(self) -> Module:
        return self._module or Module("", Path(), {})

    def _package(self) -> str:
        here = self._here()
        return here.name if here.path.name == "__init__.py" else here.name.rpartition(".")[0]

    def _place(self, node: ast.AST) -> Place:
        return str(self._here().path), getattr(node, "lineno", self._line)

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
                self._assign(node.target, element, names)
                try:
                    self._run(node.body, names)
                except _Jump as jump:
                    if not jump.again:
                        break

    def _assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                old = names.get(name, value)
                names[name] = value if self._weak == self._level else self._either(old, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                fits = isinstance(value, (list, tuple)) and len(value) == len(targets)
                for place, each in enumerate(targets):
                    self._assign(each, value[place] if fits else UNCLEAR, names)
            case ast.Subscript(value=inner, slice=index):
                owner, key = self.value(inner, names), self.value(index, names)
                if isinstance(owner, Table):
                    if isinstance(key, str):
                        owner.put(key, value, self._place(target), weakly=self._weak > owner.level)
                    else:
                        owner.open = True

    def _either(self, one: Any, other: Any) -> Any:
        """What is known of a value that is one of two."""
        if one is other or same(one, other):
            return one
        if not (isinstance(one, Table) and isinstance(other, Table)):
            return UNCLEAR
        both = self._new(one)
        both.open = one.open or other.open
        for key in {**one, **other}:
            if key not in one or key not in other or not same(one[key], other[key]):
                both.put(key, UNCLEAR, other.places.get(key) or one.places.get(key, ("", 0)))
        return both

    # Expressions

    def truth(self, value: Any) -> Any:
        """Whether a value counts as true, or `UNCLEAR`."""
        if value in (UNCLEAR, SOME_TEXT) or isinstance(value, (Outside, Function, Class, Instance, Module)):
            return UNCLEAR
        if isinstance(value, Table) and value.open and not value:
            return UNCLEAR
        return bool(value)

    def value(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """The value of an expression."""
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
                return _entry(self.value(inner, names), self.value(index, names))
            case ast.Dict(keys=keys, values=values):
                return self._table(keys, values, names)
            case ast.DictComp(key=key, value=value, generators=[one]):
                table = self._new()
                for inner_names in self._each(one, names, table):
                    entry = self.value(key, inner_names)
                    if isinstance(entry, str):
                        table.put(entry, self.value(value, inner_names), self._place(node))
                return table
            case (
                ast.ListComp(elt=element, generators=[one]) | ast.GeneratorExp(elt=element, generators=[one])
            ):
                over = self.value(one.iter, names)
                if not isinstance(over, (list, tuple, Table)):
                    return UNCLEAR
                return [self.value(element, inner) for inner in self._each(one, names, Table())]
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
                return self._called(node, names)
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
        """What a name that was imported stands for."""
        if not isinstance(value, _Link):
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
        """A method of a class, or of those that it is made from."""
        for node in kind.node.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                return Function(node, kind.module)
        for base in self.bases(kind) if depth < _DEEPEST else ():
            if found := self._method(base, name, depth + 1):
                return found
        return None

    def bases(self, kind: Class) -> list[Class]:
        """The classes of the tree that a class is directly made from."""
        with self._inside(kind.module):
            found = [self.value(base, {}) for base in kind.node.bases]
        return [base for base in found if isinstance(base, Class)]

    def _new(self, content: Mapping[str, Any] | None = None) -> Table:
        """A dictionary that is made here and now."""
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
        self, one: ast.comprehension, names: Mapping[str, Any], table: Table
    ) -> Iterator[dict[str, Any]]:
        """The names inside of a comprehension, for each element; `table` is open when they are not known."""
        over = self.value(one.iter, names)
        if not isinstance(over, (list, tuple, Table)):
            table.open = True
            return
        for element in over:
            inner = dict(names)
            self._assign(one.target, element, inner)
            wanted = [self.truth(self.value(test, inner)) for test in one.ifs]
            if UNCLEAR in wanted:
                table.open = True
            elif all(wanted):
                yield inner

    def _joined(self, every: bool, values: Iterable[ast.expr], names: Mapping[str, Any]) -> Any:
        """`and` (`every`) or `or`: one operand may decide although another is unclear."""
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
            if any(isinstance(one, (Outside, Function, Class, Instance, Module)) for one in (left, right)):
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

    # Calls

    def _called(self, node: ast.Call, names: Mapping[str, Any]) -> Any:
        place = self._place(node)
        given = [self.value(one, names) for one in node.args if not isinstance(one, ast.Starred)]
        words: dict[str, Any] = {}
        for word in node.keywords:
            value = self.value(word.value, names)
            if word.arg is not None:
                words[word.arg] = value
            elif isinstance(value, Table):
                words.update(value)
        if isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Call) and _is_super(node.func.value):
                return self._above(node.func.attr, given, words, names)
            owner = self.value(node.func.value, names)
            if isinstance(owner, Table) and not (node.func.attr in owner and callable(owner[node.func.attr])):
                return self._of_table(owner, node.func.attr, given, words, place)
            if isinstance(owner, str):
                return _of_text(owner, node.func.attr, given)
            function = self._attribute(owner, node.func.attr)
            if function is UNCLEAR:
                return self._hook(f"?.{node.func.attr}", [owner, *given], words, place)
        else:
            function = self.value(node.func, names)
        match function:
            case Function():
                answer = self._hook(f"{function.module.name}.{function.node.name}", given, words, place)
                return self.call(function, given, words) if answer is UNCLEAR else answer
            case Class():
                return Instance(function)
            case Outside(name=name):
                return self._of_python(name, given, words, place)
        return UNCLEAR

    def _above(self, name: str, given: list[Any], words: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
        """`super().name(...)`."""
        myself = names.get("self")
        if not isinstance(myself, Instance):
            return UNCLEAR
        for base in self.bases(myself.kind):
            if found := self._method(base, name):
                return self.call(Function(found.node, found.module, Instance(base)), given, words)
        return UNCLEAR

    def _of_table(
        self, table: Table, name: str, given: list[Any], words: Mapping[str, Any], place: Place
    ) -> Any:
        """A method of a dictionary, or of `os.environ`."""
        weakly = self._weak > table.level
        key, default = [*given, None, None][:2]
        match name:
            case "copy":
                return self._new(table)
            case "keys":
                return list(table)
            case "values":
                return list(table.values())
            case "items":
                return [[one, value] for one, value in table.items()]
            case "update":
                for other in (*given, Table(words)):
                    table.add(other, place, weakly=weakly)
            case "get" | "pop" | "setdefault":
                default = words.get("default", default)
                if not isinstance(key, str):
                    return UNCLEAR
                found = table.get(key, UNCLEAR if table.open else default)
                if name == "pop":
                    table.take(key, place, weakly=weakly)
                elif name == "setdefault" and key not in table:
                    table.put(key, default, place, weakly=weakly or table.open)
                    found = table[key]
                return found
            case _:
                return UNCLEAR
        return None

    def _of_python(self, name: str, given: list[Any], words: Mapping[str, Any], place: Place) -> Any:
        """A function of Python's own, or one that the hook knows."""
        first = given[0] if given else UNCLEAR
        match name, first:
            case "os.getenv", str():
                return self._of_table(self.environ, "get", given, words, place)
            case (("builtins.list" | "builtins.tuple" | "builtins.sorted"), Table()):
                return list(first)
            case "builtins.isinstance", _:
                return _is_one_of(first, given[1:])
            case (("builtins.list" | "builtins.tuple"), list()):
                return list(first)
            case "builtins.dict", _:
                table = self._new(first if isinstance(first, Table) else None)
                table.open = table.open or (bool(given) and not isinstance(first, Table))
                table.add(Table(words), place)
                return table
            case "builtins.str", (str() | int() | bool() | float()):
                return str(first)
            case "builtins.int", (str() | int() | bool()):
                return _tried(int, first)
            case "builtins.bool", _:
                return self.truth(first)
            case "builtins.len", (list() | str()):
                return len(first)
            case "json.loads", str():
                return tabled(_tried(json.loads, first), place)
        return self._hook(name, given, words, place)


def tabled(value: Any, place: Place) -> Any:
    """A value of JSON or YAML with dictionaries as `Table`."""
    if isinstance(value, Mapping):
        table = Table()
        for key, inner in value.items():
            table.put(str(key), tabled(inner, place), place)
        return table
    return [tabled(inner, place) for inner in value] if isinstance(value, (list, tuple)) else value


def _entry(owner: Any, key: Any) -> Any:
    if isinstance(owner, Table) and isinstance(key, str):
        return owner.get(key, UNCLEAR)
    if isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
        return owner[key]
    return UNCLEAR


def _is_one_of(value: Any, kinds: list[Any]) -> Any:
    """`isinstance` for what is known and of a type of Python's own."""
    wanted = kinds[0] if kinds and isinstance(kinds[0], list) else kinds
    types = [_TYPES.get(kind.name) if isinstance(kind, Outside) else None for kind in wanted]
    known = value is None or isinstance(value, tuple(_TYPES.values()))
    return isinstance(value, tuple(filter(None, types))) if known and None not in types else UNCLEAR


def _of_text(text: str, name: str, given: list[Any]) -> Any:
    if UNCLEAR in given or name not in _TEXT:
        return UNCLEAR
    return _tried(getattr(text, name), *given)


def _tried(function: Callable[..., Any], *given: Any) -> Any:
    try:
        return function(*given)
    except (TypeError, ValueError, RecursionError):
        return UNCLEAR


def _is_super(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args


_TYPES = {f"builtins.{kind.__name__}": kind for kind in (str, int, bool, float, list, dict)}
_TEXT = frozenset(
    {
        "lower",
        "upper",
        "strip",
        "lstrip",
        "rstrip",
        "split",
        "startswith",
        "endswith",
        "join",
        "replace",
        "removeprefix",
    }
)
