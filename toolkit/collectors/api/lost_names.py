"""Uses of names that are None or unbound since an import of an examined package failed."""

from __future__ import annotations

import ast

from verl_doctor.toolkit.collectors.api.recorder import Recorder
from verl_doctor.toolkit.collectors.api.use import Context, position
from verl_doctor.toolkit.collectors.api.value import GONE
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.symbols import Module


class LostNames:
    """Records in `record` the uses that fail because the name has no value."""

    def __init__(self, reader: ValueReader, record: Recorder) -> None:
        self.reader, self.record = reader, record

    def if_none(self, node: ast.expr, context: Context, kind: str) -> None:
        """Record the use of a name that is None since its import failed."""
        origin = self._origin(node, context)
        if isinstance(node, ast.Name) and origin and self.reader.is_none(node, context.scope):
            self._left(node, origin, "None", kind, context)

    def if_unbound(self, node: ast.Name, context: Context) -> None:
        """Record the use of a name that is unbound since its import failed."""
        origin = self._origin(node, context)
        if origin and self.reader.is_unbound(node.id, context.scope):
            self._left(node, origin, "not bound", "name", context)

    def _origin(self, node: ast.expr, context: Context) -> tuple[str, str] | None:
        """Return the import source of a name, if one of the examined packages lacks it."""
        found = context.scope.find(node.id) if isinstance(node, ast.Name) else None
        for entry in found[1] if found else ():
            origin = entry.origin
            match entry.expression:
                case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), _]):
                    module = self.reader.value(owner, found[0]) if found else None
                    origin = (module.name, name) if isinstance(module, Module) else origin
            if origin[0].partition(".")[0] in self.reader.versions:
                return origin if self.reader.value(node, context.scope) is GONE else None
        return None

    def _left(self, name: ast.Name, origin: tuple[str, str], left: str, kind: str, context: Context) -> None:
        # The rest of the import's own block is not reached once the import has failed.
        guard = context.caught(kind) or context.caught("import")
        reason = f"{name.id} is {left} where {origin[0]} has no {origin[1]}"
        self.record.use(
            "attribute", ".".join(origin), position(name), "missing", context, guard, reason=reason
        )
