"""The names that a statement binds."""

from __future__ import annotations

import ast


class BoundNames:
    """Finds the names that statements bind, once for each statement."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[str]] = {}

    def of(self, node: ast.AST) -> frozenset[str]:
        """Return the names that a statement, or one nested in it, binds in its own scope."""
        if id(node) not in self._known:
            names: set[str] = set()
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    names.add(name)
                case ast.alias(name=name, asname=asname):
                    names.add(asname or name.partition(".")[0])
                case ast.Lambda() | ast.Constant():
                    pass
                case _:
                    names.update(*map(self.of, ast.iter_child_nodes(node)))
            if not isinstance(node, ast.stmt):
                return frozenset(names)
            self._known[id(node)] = frozenset(names)
        return self._known[id(node)]
