"""The imports of a module of verl, and whether the module goes on without them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from verl_doctor.toolkit.collectors.api.use import Import, Uses
from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, dotted
from verl_doctor.toolkit.sources.python.summary import absolute
from verl_doctor.toolkit.sources.python.summary_class import is_type_checking


def read_imports(tree: ast.Module, file: ModuleFile, own: SourceTree) -> Uses:
    """Read the imports at any depth. Expressions are skipped, which makes this cheap."""
    found = Uses(file.name, str(file.path))

    def block(body: Iterable[ast.stmt], unit: str, *, conditional: bool) -> None:
        for node in body:
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        add(alias.name, "", node.lineno, unit, conditional=conditional)
                case ast.ImportFrom(names=names):
                    for alias in names:
                        add(
                            absolute(node, file.package),
                            alias.name,
                            node.lineno,
                            unit,
                            conditional=conditional,
                        )
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    block(node.body, unit or name, conditional=conditional)
                case ast.With(items=items):
                    block(node.body, unit, conditional=conditional or any(map(_suppresses, items)))
                case ast.ClassDef() | ast.AsyncWith():
                    block(node.body, unit, conditional=conditional)
                case ast.If(test=test) if is_type_checking(test):
                    block(node.orelse, unit, conditional=conditional)
                case _:
                    for part in ("body", "orelse", "finalbody"):
                        block(getattr(node, part, []), unit, conditional=True)
                    for inner in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                        block(inner.body, unit, conditional=True)

    def add(source: str, name: str, line: int, unit: str, *, conditional: bool) -> None:
        module = own.own_name(source)
        if module is not None:
            inner = own.locate(f"{module}.{name}") if name else None
            is_module = inner is not None and inner.kind in {"module", "package", "hidden"}
            target = f"{module}.{name}" if is_module else module
            lacked = "" if is_module or name == "*" else name
            found.imports.append(Import(target, unit, conditional, line=line, name=lacked))

    block(tree.body, "", conditional=False)
    return found


def _suppresses(item: ast.withitem) -> bool:
    """Return whether `with suppress(...)` lets a failure pass."""
    call = item.context_expr
    return isinstance(call, ast.Call) and dotted(call.func).rpartition(".")[2] == "suppress"
