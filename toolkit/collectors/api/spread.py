"""Keywords that reach a call by a dict: `f(**kwargs)` after `kwargs = {...}` and `kwargs["name"] = value`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import cast

from verl_doctor.toolkit.collectors.api.calls import Keyword
from verl_doctor.toolkit.collectors.api.guards import judge, opposite
from verl_doctor.toolkit.collectors.api.use import Context, position
from verl_doctor.toolkit.collectors.api.values import ValueReader

Placed = tuple[Context, Keyword]
_ANY = "*"  # stands for an unknown key


class Spreads:
    """Records the entries added to each dict, each with its context."""

    def __init__(self, reader: ValueReader) -> None:
        self.reader = reader
        self._added: dict[tuple[int, str], list[Placed]] = {}
        self._taken: dict[tuple[int, str], set[str]] = {}

    def keywords(self, node: ast.Call, context: Context) -> tuple[list[Placed], bool]:
        """Return the keywords of a call, and whether the list is certainly complete."""
        found: list[Placed] = []
        all_known = True
        for keyword in node.keywords:
            if keyword.arg is not None:
                found.append((context, Keyword(keyword.arg, position(keyword), keyword.value)))
            else:
                found += self._of(keyword.value, context)
                all_known = False
        return found, all_known

    def _of(self, node: ast.expr, context: Context) -> Iterator[Placed]:
        match node:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        yield from self._of(value, context)
                    elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield context, Keyword(key.value, position(key), value)
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                yield from self.keywords(node, context)[0]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                holds = judge(test, self.reader, context.scope).holds
                if holds is not False:
                    yield from self._of(body, context if holds else context.under(test, self.reader))
                if holds is not True:
                    other = context if holds is False else context.under(opposite(test), self.reader)
                    yield from self._of(orelse, other)
            case ast.Name(id=name):
                yield from self.held(name, context)

    def held(self, name: str, context: Context) -> Iterator[Placed]:
        """Yield the entries of a variable bound to a dict, or to several, each made from the one before."""
        home = context.scope.find(name)
        if home is None or any(entry.expression is None for entry in home[1]):
            return
        found: list[Placed] = []
        if len(home[1]) == 1 and not isinstance(home[1][0].expression, ast.Name):
            found += self._of(cast("ast.expr", home[1][0].expression), context)
        found += self._added.get((id(home[0]), name), [])
        taken = self._taken.get((id(home[0]), name), set())
        yield from (placed for placed in found if not taken & {placed[1].name, _ANY})

    def item(self, target: ast.Subscript, value: ast.expr, context: Context) -> None:
        """Record `kwargs["name"] = value`, which adds a keyword."""
        match target:
            case ast.Subscript(value=ast.Name(id=holder), slice=ast.Constant(value=str(name)) as key):
                self._add(holder, (context, Keyword(name, position(key), value)))

    def removed(self, target: ast.expr, context: Context) -> None:
        """Record `del kwargs["name"]`, which removes a keyword, or `del kwargs[key]`, an unknown one."""
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._take(target.value.id, target.slice, context)

    def _take(self, holder: str, key: ast.expr, context: Context) -> None:
        home = context.scope.find(holder)
        if home is not None:
            name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else _ANY
            self._taken.setdefault((id(home[0]), holder), set()).add(name)

    def update(self, node: ast.Call, context: Context) -> None:
        """Record `kwargs.update(name=value)`, `kwargs.update({"name": value})` and `kwargs.pop("name")`."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=holder), attr="pop"), args=[key, *_]):
                self._take(holder, key, context)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=holder), attr="update"), args=parts):
                placed = [entry for part in parts for entry in self._of(part, context)]
                for entry in [*placed, *self.keywords(node, context)[0]]:
                    self._add(holder, entry)

    def _add(self, holder: str, entry: Placed) -> None:
        home = entry[0].scope.find(holder)
        if home is not None:
            self._taken.get((id(home[0]), holder), set()).discard(entry[1].name)
            self._added.setdefault((id(home[0]), holder), []).append(entry)
