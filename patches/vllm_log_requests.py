"""Fix for VLLM101: use `enable_log_requests` where vLLM has it, `disable_log_requests` where it does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.checks._vllm_renames import LOG_REQUESTS
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile, fix
from verl_doctor.toolkit.fact_sources import SourceFiles
from verl_doctor.toolkit.fact_vllm_uses import VllmUse, VllmUses
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.py_edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.py_source import Unreadable, dotted
from verl_doctor.toolkit.rule import Finding

OLD, NEW = LOG_REQUESTS.old, LOG_REQUESTS.new


@fix(
    "vllm-log-requests",
    repairs=LOG_REQUESTS.code,
    safety="safe",
    upstream=LOG_REQUESTS.upstream,
    needed="vllm>=0.12",
    restart="Ray workers that run now, which keep the old code",
)
def vllm_log_requests(
    finding: Finding, uses: VllmUses, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Pass and read enable_log_requests, inverted, where this vLLM has it.

    Each place asks at run time which of the two names there is, so the edited file works with vLLM before, during and
    after the rename.
    """
    places = {place.path for place in (finding.location, *finding.also) if place is not None}
    changes: list[Change] = []
    try:
        for path in sorted(places):
            broken = [use for use in uses.uses if use.path == path and _is_ours(use)]
            before = sources.read(path)
            if isinstance(before, Unreadable):
                return Refusal(before.reason)
            after = _repaired(SourceText(before, path), broken, marker.comment(LOG_REQUESTS.code))
            if after != before:
                changes.append(ReplaceFile(Path(path), before, after))
    except CannotEdit as reason:
        return Refusal(str(reason))
    return changes


def _is_ours(use: VllmUse) -> bool:
    """Whether the use breaks, or reads what a store of this file, once repaired, sets no more."""
    return use.last == OLD and use.now == NEW and use.resolution != "present" and not use.guard


def _repaired(source: SourceText, broken: list[VllmUse], comment: str) -> bytes:
    return source.edited(_Repair(source, broken).edits(), comment)


@dataclass(frozen=True)
class _Place:
    """A broken use and the nodes around it, innermost first."""

    node: ast.expr | ast.keyword
    above: tuple[ast.AST, ...]


class _Repair:
    """The edits for one file. Raises CannotEdit for a form that it does not know."""

    def __init__(self, source: SourceText, broken: list[VllmUse]) -> None:
        self.source = source
        found = (_place(source, use) for use in broken)
        self.places = list({id(place.node): place for place in found}.values())
        self.broken = {id(place.node) for place in self.places}
        self.inspect = _inspect(source.tree)

    def edits(self) -> list[Edit]:
        """One edit for each outermost broken place; what lies inside it is part of its text."""
        return self._edits_below(self.source.tree)

    def _edits_below(self, top: ast.AST) -> list[Edit]:
        below = [place for place in self.places if place.node is top or top in place.above]
        nodes = {id(place.node) for place in below}
        return [
            self._edit(place)
            for place in below
            if not any(id(node) in nodes for node in place.above[: _index(place.above, top)])
        ]

    def _edit(self, place: _Place) -> Edit:
        node, above = place.node, place.above
        match node:
            case ast.keyword():
                return Edit(self.source.start(node), self.source.end(node), self._argument(node.value, place))
            case ast.Attribute(ctx=ast.Load()):
                return Edit(self.source.start(node), self.source.end(node), self._read(node))
            case ast.Attribute():
                return self._store(node, above[0])
            case ast.Constant() if isinstance(above[0], ast.Dict):
                return self._dict_entry(node, above[0], place)
            case ast.Constant() if isinstance(above[0], ast.Subscript):
                return self._item(above[0], above[1], place)
        raise CannotEdit(
            f"{self.source.path}:{node.lineno}: this use of {OLD} is of no form that is known here"
        )

    def _argument(self, value: ast.expr, place: _Place) -> str:
        """`**(...)` in place of the keyword or the dict entry."""
        if isinstance(value, ast.Attribute) and id(value) in self.broken and (owner := dotted(value.value)):
            return (
                f'**({{"{NEW}": {owner}.{NEW}}} if hasattr({owner}, "{NEW}") else {{"{OLD}": {owner}.{OLD}}})'
            )
        return f"**({self._choice(value, place)})"

    def _choice(self, value: ast.expr, place: _Place) -> str:
        """A dict with the name that the callee takes."""
        given = self._text(value)
        return f'{{"{NEW}": {self._inverted(value)}}} if {self._accepts(place)} else {{"{OLD}": {given}}}'

    def _inverted(self, value: ast.expr) -> str:
        match value:
            case ast.Constant(value=bool(known)):
                return str(not known)
            case ast.Attribute(value=inner, attr=attr) if attr == OLD and id(value) not in self.broken:
                if owner := dotted(inner):  # its type is not known: it may have either name
                    return f'({owner}.{NEW} if hasattr({owner}, "{NEW}") else not {owner}.{OLD})'
        return f"not ({self._text(value)})"

    def _read(self, node: ast.Attribute) -> str:
        """A conditional expression in place of `owner.disable_log_requests`."""
        if owner := dotted(node.value):
            return f'(not {owner}.{NEW} if hasattr({owner}, "{NEW}") else {owner}.{OLD})'
        return f'(lambda it: not it.{NEW} if hasattr(it, "{NEW}") else it.{OLD})({self._text(node.value)})'

    def _store(self, node: ast.Attribute, statement: ast.AST) -> Edit:
        owner = dotted(node.value)
        if not owner or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise CannotEdit(f"{self.source.path}:{node.lineno}: this assignment to {OLD} is not a plain one")
        value = statement.value
        text = (
            f'setattr({owner}, *(("{NEW}", {self._inverted(value)}) if hasattr({owner}, "{NEW}") '
            f'else ("{OLD}", {self._text(value)})))'
        )
        return Edit(self.source.start(statement), self.source.end(statement), text)

    def _dict_entry(self, key: ast.Constant, table: ast.Dict, place: _Place) -> Edit:
        value = next(value for other, value in zip(table.keys, table.values, strict=True) if other is key)
        end = self.source.end(value)
        while self.source.text[end : end + 1] == ")":
            end += 1
        if self.source.text[end:].lstrip()[:1] not in {",", "}"}:
            raise CannotEdit(f"{self.source.path}:{key.lineno}: the end of this dict entry is not plain")
        return Edit(self.source.start(key), end, self._argument(value, place))

    def _item(self, target: ast.Subscript, statement: ast.AST, place: _Place) -> Edit:
        owner = dotted(target.value)
        if not owner or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise CannotEdit(
                f"{self.source.path}:{target.lineno}: this assignment of {OLD} is not a plain one"
            )
        text = f"{owner}.update({self._choice(statement.value, place)})"
        return Edit(self.source.start(statement), self.source.end(statement), text)

    def _accepts(self, place: _Place) -> str:
        return f'"{NEW}" in {self.inspect}.signature({self._callee(place)}).parameters'

    def _callee(self, place: _Place) -> str:
        """The text of what is called with the argument: directly, or with the dict in which it stands."""
        call = place.above[0]
        if isinstance(place.node, ast.keyword) and isinstance(call, ast.Call) and not _is_dict(call.func):
            return self._text(call.func)
        name = _held_by(place)
        scope = next(
            (node for node in place.above if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))), None
        )
        found = {
            dotted(node.func)
            for node in ast.walk(scope or self.source.tree)
            if isinstance(node, ast.Call) and any(_spreads(keyword, name, place) for keyword in node.keywords)
        }
        imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in self.source.tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        if len(found) != 1 or (callee := found.pop()).partition(".")[0] not in imported:
            raise CannotEdit(f"{self.source.path}:{place.node.lineno}: what takes this dict cannot be told")
        return callee

    def _text(self, node: ast.expr) -> str:
        """The text of an expression, with the broken places inside it repaired."""
        text, begin = self.source.of(node), self.source.start(node)
        for edit in sorted(self._edits_below(node), key=lambda edit: edit.start, reverse=True):
            text = text[: edit.start - begin] + edit.text + text[edit.end - begin :]
        return text


def _index(above: tuple[ast.AST, ...], node: ast.AST) -> int:
    return next((index for index, other in enumerate(above) if other is node), 0)


def _place(source: SourceText, use: VllmUse) -> _Place:
    """Find the node of a use by its kind and position."""
    for node, above in _walk(source.tree, ()):
        match node:
            case ast.Attribute(attr=attr) if use.kind in {"attribute", "store"}:
                found = attr == OLD
            case ast.keyword(arg=name) if use.kind == "keyword":
                found = name == OLD
            case ast.Constant(value=name) if use.kind == "keyword":
                found = name == OLD and bool(above) and isinstance(above[0], (ast.Dict, ast.Subscript))
            case _:
                continue
        if found and (node.lineno, node.col_offset) == (use.line, use.column):
            if any(isinstance(part, ast.JoinedStr) for part in above):
                raise CannotEdit(f"{source.path}:{use.line}: {OLD} stands inside an f-string")
            return _Place(node, above)
    raise CannotEdit(f"{source.path}:{use.line}: the file has changed since it was read")


def _walk(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    for child in ast.iter_child_nodes(node):
        yield child, (node, *above)
        yield from _walk(child, (node, *above))


def _is_dict(function: ast.expr) -> bool:
    """Whether a call only makes or fills a dict: `dict(...)`, `kwargs.update(...)`."""
    return dotted(function) == "dict" or (isinstance(function, ast.Attribute) and function.attr == "update")


def _held_by(place: _Place) -> str:
    """The name of the variable that holds the dict, "" when the dict is spread where it stands."""
    for node in place.above:
        match node:
            case ast.Subscript(value=ast.Name(id=name)):
                return name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update")):
                return name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                return name
            case ast.stmt():
                return ""
    return ""


def _spreads(keyword: ast.keyword, name: str, place: _Place) -> bool:
    if keyword.arg is not None:
        return False
    if name:
        return isinstance(keyword.value, ast.Name) and keyword.value.id == name
    return keyword in place.above


def _inspect(tree: ast.Module) -> str:
    """The module `inspect` as this file spells it, or an expression that imports it."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "inspect":
                    return alias.asname or "inspect"
    return '__import__("inspect")'
