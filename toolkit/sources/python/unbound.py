"""Names that a source reads but never binds: reaching such a line raises NameError."""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator

from verl_doctor.toolkit.sources.python.source import walk


def unbound(tree: ast.Module, text: str) -> frozenset[str]:
    """Return the names that functions read, but neither they nor the module nor Python bind.

    None where undetermined.
    """
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in walk(tree)):
        return frozenset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            table = symtable.symtable(text, "<source>", "exec")
        except SyntaxError:  # `nonlocal x` in a module, and the like
            return frozenset()
    known = {
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()
    }
    known |= {inner.get_name() for inner in table.get_children()} | set(_set_from_within(table))
    return frozenset(_globals(table)) - known - frozenset(dir(builtins)) - {"__file__", "__path__"}


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _set_from_within(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the module's names that its functions assign, declared with `global`."""
    for inner in table.get_children():
        yield from (
            symbol.get_name()
            for symbol in inner.get_symbols()
            if symbol.is_declared_global() and symbol.is_assigned()
        )
        yield from _set_from_within(inner)
