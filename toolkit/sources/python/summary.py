"""Summarises a module's syntax tree: the names it binds, and to what."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from verl_doctor.toolkit.sources.python.lazy_module import lazy_module, modules_made
from verl_doctor.toolkit.sources.python.source import constant_keys, dotted, statements, text_of, walk
from verl_doctor.toolkit.sources.python.summary_class import class_of, function_of, is_type_checking
from verl_doctor.toolkit.sources.python.symbols import Alias, Binding, Lazy, Module, Variable

REPLACES_ITSELF = "it replaces itself in sys.modules"
_WRITES_NAMES = frozenset({"globals", "locals", "vars", "exec", "setattr"})


@dataclass
class _Names:
    """Names bound so far. An unconditional binding replaces earlier ones, a conditional one adds to them."""

    found: dict[str, tuple[Binding, ...]] = field(default_factory=dict)

    def bind(self, name: str, binding: Binding, *, conditional: bool) -> None:
        before = self.found.get(name, ()) if conditional else ()
        self.found[name] = (*before, binding)


class _Reader:
    """Walks the statements that run when the module is imported."""

    def __init__(self, name: str, *, is_package: bool) -> None:
        self.name = name
        self.package = name if is_package else name.rpartition(".")[0]
        self.names, self.typing = _Names(), _Names()
        self.stars: list[str] = []
        self.exported: set[str] | None = None
        self.exported_is_known = True
        self.getattr: ast.FunctionDef | None = None
        self.tables: dict[str, dict[str, str] | None] = {}
        self.open = ""

    def block(self, body: Iterable[ast.stmt], names: _Names, *, conditional: bool) -> None:
        for statement in body:
            self.statement(statement, names, conditional=conditional)

    def statement(self, node: ast.stmt, names: _Names, *, conditional: bool) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, names, conditional=conditional)
            case ast.FunctionDef(name="__getattr__"):
                self.getattr = node
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.bind(name, function_of(node, self.name, in_class=False), conditional=conditional)
                self._globals(node)
            case ast.ClassDef(name=name):
                names.bind(name, class_of(node, self.name), conditional=conditional)
            case ast.If(test=test) if is_type_checking(test):
                self.block(node.body, self.typing, conditional=True)
                self.block(node.orelse, names, conditional=conditional)
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name) and not conditional:
                        names.found.pop(target.id, None)
            case _:
                self._other(node, names, conditional=conditional)

    def _other(self, node: ast.stmt, names: _Names, *, conditional: bool) -> None:
        """Assignments, and statements that hold others."""
        inner = [part for part in _blocks(node) if part]
        for part in inner:
            self.block(part, names, conditional=True)
        for target, value, annotation in _targets(node):
            self._assign(target, value, annotation, names, conditional=conditional or bool(inner))
        self._watch_for_hidden_writes(node, has_blocks=bool(inner))

    def _assign(
        self,
        target: ast.expr,
        value: ast.expr | None,
        annotation: ast.expr | None,
        names: _Names,
        *,
        conditional: bool,
    ) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._assign(element, None, None, names, conditional=conditional)
            return
        if isinstance(target, ast.Starred):
            self._assign(target.value, None, None, names, conditional=conditional)
            return
        if not isinstance(target, ast.Name) or (annotation is not None and value is None):
            return
        name = target.id
        if name == "__all__":
            self._export(value)
        self.tables[name] = constant_keys(value)
        alias = dotted(value)
        if alias and alias.split(".")[0] in names.found:
            binding: Binding = Alias(f"{self.name}.{alias}", target.lineno)
        else:
            made_by = dotted(value.func) if isinstance(value, ast.Call) else ""
            annotation_text = text_of(annotation, 400) if annotation is not None else ""
            binding = Variable(name, self.name, target.lineno, annotation_text, made_by)
        names.bind(name, binding, conditional=conditional)

    def _import(self, node: ast.Import | ast.ImportFrom, names: _Names, *, conditional: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                target = alias.name if alias.asname else alias.name.split(".")[0]
                names.bind(
                    alias.asname or target,
                    Alias(target, node.lineno, module_only=True),
                    conditional=conditional,
                )
            return
        source = absolute(node, self.package)
        for alias in node.names:
            if alias.name == "*":
                if names is self.names:
                    self.stars.append(source)
            else:
                names.bind(
                    alias.asname or alias.name,
                    Alias(f"{source}.{alias.name}", node.lineno),
                    conditional=conditional,
                )

    def _export(self, value: ast.expr | None) -> None:
        found = constant_keys(value)
        if found is None:
            self.exported_is_known = False
        else:
            self.exported = (self.exported or set()) | set(found)

    def _globals(self, function: ast.AST) -> None:
        """Handle functions that bind a module's name through `global`."""
        for node in statements(function):
            if isinstance(node, ast.Global):
                for name in node.names:
                    self.names.bind(name, Variable(name, self.name, node.lineno), conditional=True)

    def _watch_for_hidden_writes(self, node: ast.stmt, *, has_blocks: bool) -> None:
        if has_blocks:
            return
        harmless = [*_handed_to_loaders(node), *_read_from(node)]
        for part in walk(node):
            if (
                isinstance(part, ast.Call)
                and isinstance(part.func, ast.Name)
                and part.func.id in _WRITES_NAMES
                and part not in harmless
            ):
                self.open = f"it binds names through {part.func.id}()"
            elif (
                isinstance(part, ast.Subscript)
                and isinstance(part.ctx, ast.Store)
                and dotted(part.value) == "sys.modules"
            ):
                self.open = REPLACES_ITSELF


def summarise(tree: ast.Module, name: str, path: str, *, is_package: bool) -> Module:
    """Return what a module binds. May raise RecursionError on absurdly nested sources."""
    reader = _Reader(name, is_package=is_package)
    reader.block(tree.body, reader.names, conditional=False)
    replaced_by = lazy_module(tree) if reader.open == REPLACES_ITSELF else None
    return Module(
        name=name,
        path=path,
        is_package=is_package,
        names=reader.names.found,
        typing_names=reader.typing.found,
        stars=tuple(dict.fromkeys(reader.stars)),
        exported=frozenset(reader.exported)
        if reader.exported is not None and reader.exported_is_known
        else None,
        lazy=replaced_by or _lazy(reader),
        open="" if replaced_by else reader.open,
        made=modules_made(tree, name) if is_package else (),
    )


def absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the module that a from-import names, with leading dots resolved."""
    if node.level == 0:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - (node.level - 1)]
    return ".".join([*base, *([node.module] if node.module else [])])


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for handler in getattr(node, "handlers", []):
        yield handler.body
    for case in getattr(node, "cases", []):
        yield case.body


def _targets(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None, ast.expr | None]]:
    """Yield what a statement assigns to: target, value and annotation."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield target, value, None
        case ast.AnnAssign(target=target, value=value, annotation=annotation):
            yield target, value, annotation
        case ast.AugAssign(target=target, value=value):
            yield target, value, None
        case ast.For(target=target) | ast.AsyncFor(target=target):
            yield target, None, None
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    yield item.optional_vars, None, None
    for part in _own_expressions(node):
        if isinstance(part, ast.NamedExpr):
            yield part.target, part.value, None


def _own_expressions(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without its nested statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from walk(child)


def _handed_to_loaders(node: ast.stmt) -> list[ast.expr]:
    """Return the `globals()` that a statement passes to a LazyLoader, which replaces only one name.

    The statement is `name = LazyLoader("name", globals(), "package.module")`, and it replaces only that name.

    vLLM's class (vllm/utils, taken from TensorFlow) writes only to the given name.
    """
    match node:
        case ast.Assign(
            value=ast.Call(func=function, args=[ast.Constant(value=str()), ast.Call() as handed, *_])
        ) if dotted(function).rpartition(".")[2] == "LazyLoader":
            return [handed]
    return []


def _read_from(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the `globals()` of `globals()["__file__"]`, which binds nothing."""
    for part in walk(node):
        if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Load):
            yield part.value


def _lazy(reader: _Reader) -> Lazy | None:
    """Read the names that a module-level `__getattr__(name)` serves."""
    function = reader.getattr
    if function is None:
        return None
    parameter = function.args.args[0].arg if function.args.args else ""
    table: dict[str, str] = {}
    complete = False
    for statement in function.body:
        complete = False
        match statement:
            case ast.If(test=test):
                keys = _served(test, parameter, reader.tables)
                if keys is None:
                    return Lazy(table | _all_tables(function, reader), complete=False)
                table |= keys
                complete = _raises_attribute_error(statement.orelse)
            case ast.Raise():
                complete = _raises_attribute_error([statement])
            case ast.Import() | ast.ImportFrom() | ast.Global() | ast.Expr(value=ast.Constant()):
                continue
            case _:
                return Lazy(table | _all_tables(function, reader), complete=False)
    return Lazy(table, complete)


def _served(
    test: ast.expr, parameter: str, tables: dict[str, dict[str, str] | None]
) -> dict[str, str] | None:
    """Return the names for which the test `name == "x"`, `name in TABLE` or `name in ("x", "y")` holds."""
    if (
        not isinstance(test, ast.Compare)
        or len(test.ops) != 1
        or not isinstance(test.left, ast.Name)
        or test.left.id != parameter
    ):
        return None
    right = test.comparators[0]
    if isinstance(test.ops[0], ast.Eq) and isinstance(right, ast.Constant) and isinstance(right.value, str):
        return {right.value: ""}
    if isinstance(test.ops[0], ast.In):
        return tables.get(right.id) if isinstance(right, ast.Name) else constant_keys(right)
    return None


def _all_tables(function: ast.FunctionDef, reader: _Reader) -> dict[str, str]:
    """Return every table that the function mentions: names in one are served, names in none may be."""
    found: dict[str, str] = {}
    for node in walk(function):
        if isinstance(node, ast.Name):
            found |= reader.tables.get(node.id) or {}
    return found


def _raises_attribute_error(body: list[ast.stmt]) -> bool:
    if not body or not isinstance(body[-1], ast.Raise):
        return False
    raised = body[-1].exc
    return dotted(raised.func if isinstance(raised, ast.Call) else raised) == "AttributeError"
