"""Fix for VLLM101: use `enable_log_requests` where vLLM has it, `disable_log_requests` where it does not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from verl_doctor.checks._vllm_renames import LOG_REQUESTS
from verl_doctor.patches._log_requests_places import NEW, OLD, Edited, Place, places
from verl_doctor.patches._log_requests_settled import Settled
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile, fix
from verl_doctor.toolkit.fact_sources import SourceFiles
from verl_doctor.toolkit.fact_vllm_uses import VllmUse, VllmUses
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.py_edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.py_source import Unreadable, dotted
from verl_doctor.toolkit.rule import Finding

_AFTER_VALUE = re.compile(r"\s+|#[^\r\n]*|(?P<bracket>\))|(?P<other>.)")
_KINDS = {
    "attribute": {"read", "other"},
    "store": {"store", "other"},
    "keyword": {"keyword", "key", "item", "other"},
}


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
    after the rename. A read of the old name is repaired wherever it stands, as the type of its owner need not be known;
    a store too, unless the owner is verl's own. The edited source is read again: a use that is left means a refusal.
    """
    places = {place.path for place in (finding.location, *finding.also) if place is not None}
    changes: list[Change] = []
    try:
        for path in sorted(places):
            recorded = [use for use in uses.uses if use.path == path and use.last == OLD and use.now == NEW]
            before = sources.read(path)
            if isinstance(before, Unreadable):
                return Refusal(before.reason)
            after = _repaired(SourceText(before, path), recorded, marker.comment(LOG_REQUESTS.code))
            if after != before:
                changes.append(ReplaceFile(Path(path), before, after))
    except CannotEdit as reason:
        return Refusal(str(reason))
    return changes


def _repaired(source: SourceText, recorded: list[VllmUse], comment: str) -> bytes:
    """Edit the source, then read it again: nothing that fails after the rename may be left."""
    after = source.edited(_Repair(source, recorded).edits(), comment)
    tree = SourceText(after, source.path).tree
    settled = Settled(tree)
    for place in places(tree):
        if not settled(place):
            raise CannotEdit(
                f"{source.path}: line {place.node.lineno} of the edited source would still use {OLD}"
            )
    return after


class _Repair:
    """The edits for one file. Raises CannotEdit, with the line, for what it cannot make work on both sides."""

    def __init__(self, source: SourceText, recorded: list[VllmUse]) -> None:
        self.source = source
        self.inspect = _inspect(source.tree)
        found = places(source.tree)
        settled = Settled(source.tree)
        self.known = {id(place.node) for use in recorded for place in self._recorded(use, found)}
        broken = {id(place.node) for use in recorded if not use.guard for place in self._recorded(use, found)}
        self.places = [place for place in found if id(place.node) in broken or not settled(place)]
        for place in self.places:
            self._refuse_unknown(place)
        self._refuse_inconsistent(found, settled)
        self.spans = [
            (self.source.start(place.first), self._end(place, place.last), place)
            for place in self.places
            if place.first and place.last  # the others have been refused
        ]

    def _recorded(self, use: VllmUse, found: list[Place]) -> list[Place]:
        """The places that a recorded use speaks of."""
        at = [
            place for place in found if (place.node.lineno, place.node.col_offset) == (use.line, use.column)
        ]
        at = [place for place in at if place.kind in _KINDS.get(use.kind, ())]
        if not at:
            raise CannotEdit(f"{self.source.path}:{use.line}: the file has changed since it was read")
        return at

    def _no(self, place: Place, why: str) -> CannotEdit:
        return CannotEdit(f"{self.source.path}:{place.node.lineno}: {OLD} cannot be repaired here: {why}")

    def _refuse_unknown(self, place: Place) -> None:
        """Refuse what no edit is known for."""
        if any(type(node).__name__ in {"JoinedStr", "TemplateStr"} for node in place.above):
            raise self._no(place, "it stands inside an f-string")
        if place.what:
            raise self._no(place, place.what)
        if place.kind in {"keyword", "key", "item"} and id(place.node) not in self.known:
            raise self._no(place, "whether what gets this argument takes the old name cannot be told")
        match place.node, place.above[0]:
            case ast.keyword() as node, ast.Call(args=args, keywords=keywords):
                if any(keyword.arg == NEW for keyword in keywords):
                    raise self._no(place, f"the same call passes {NEW}")
                if any(
                    isinstance(other, ast.Starred) and self.source.start(other) > self.source.start(node)
                    for other in args
                ):
                    raise self._no(place, "an argument with * may follow it, and none may follow one with **")
            case _, ast.Dict(keys=keys):
                if any(isinstance(key, ast.Constant) and key.value == NEW for key in keys):
                    raise self._no(place, f"the same dict has {NEW}")

    def _refuse_inconsistent(self, found: list[Place], settled: Settled) -> None:
        """Refuse what would ask for the old name where, after the repair, the new one is set."""
        for node in settled.lost:
            raise CannotEdit(
                f"{self.source.path}:{node.lineno}: {node.name} has a field {OLD} and is derived from a class of vLLM"
            )
        stores = [place for place in self.places if place.kind == "store"]
        held = {_held_by(place): place for place in self.places if place.kind in {"key", "item"}}
        for place in found:
            match place.kind, place.above[0], place.owner:
                case "asked", ast.Call(), _ if stores and not settled.own(place):
                    line = stores[0].node.lineno
                    raise self._no(
                        place, f"its presence is asked for, and what line {line} sets is the new name"
                    )
                case (("asked" | "looked up"), _, ast.Name(id=name)) if name in held:
                    line = held[name].node.lineno
                    raise self._no(place, f"it is looked up in {name}, where line {line} puts the new name")

    def _end(self, place: Place, last: Edited) -> int:
        """Where the edit of a place ends: for a dict entry behind the brackets around its value."""
        end = self.source.end(last)
        if place.kind != "key":
            return end
        for part in _AFTER_VALUE.finditer(self.source.text, end):
            if part["bracket"]:
                end = part.end()
            elif part["other"]:
                if part["other"] not in {",", "}"}:
                    raise self._no(place, "the end of this dict entry is not plain")
                break
        return end

    # --- edits

    def edits(self) -> list[Edit]:
        """One edit for each outermost place; what lies inside it is part of its text."""
        return self._edits(0, len(self.source.text))

    def _edits(self, begin: int, stop: int) -> list[Edit]:
        inside = [span for span in self.spans if begin <= span[0] and span[1] <= stop]
        return [
            Edit(first, last, self._replacement(place))
            for first, last, place in inside
            if not any(other is not place and start <= first and last <= end for start, end, other in inside)
        ]

    def _text(self, node: ast.expr) -> str:
        """The text of an expression, with the places inside it repaired, to stand inside brackets."""
        begin, stop = self.source.start(node), self.source.end(node)
        text = self.source.text[begin:stop]
        for edit in sorted(self._edits(begin, stop), key=lambda edit: edit.start, reverse=True):
            text = text[: edit.start - begin] + edit.text + text[edit.end - begin :]
        if isinstance(node, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Tuple)):
            return f"({text})"
        return text

    def _replacement(self, place: Place) -> str:
        value = place.value
        if place.kind == "read" and place.owner:
            return self._read(place.owner, value)
        if value and place.kind == "store" and place.owner:
            return self._store(place.owner, value, place)
        if value and place.kind == "item" and place.owner:
            return f"{self._text(place.owner)}.update({self._names(value, place)})"
        if value:
            return f"**({self._names(value, place)})"
        raise self._no(place, "it is of no form that is known")

    def _read(self, owner: ast.expr, default: ast.expr | None) -> str:
        """A conditional expression. What computes its owner or a default is handed to a lambda, to be done once."""
        if isinstance(owner, ast.Name) and isinstance(default, (ast.Constant, ast.Name, type(None))):
            other = self._text(default) if default else ""
            return f"({_choice_of_read(owner.id, other)})"
        if default is None:
            return f"(lambda it: {_choice_of_read('it', '')})({self._text(owner)})"
        return f"(lambda it, other: {_choice_of_read('it', 'other')})({self._text(owner)}, {self._text(default)})"

    def _store(self, owner: ast.expr, value: ast.expr, place: Place) -> str:
        """A call of setattr. What computes its owner is handed to a lambda, in the order in which Python computes both."""
        if isinstance(owner, ast.Name):
            name, text, inverted = owner.id, self._text(value), self._inverted(value)
        else:
            name, text, inverted = "it", "value", "not value"
        call = f'setattr({name}, *(("{NEW}", {inverted}) if hasattr({name}, "{NEW}") else ("{OLD}", {text})))'
        if isinstance(owner, ast.Name):
            return call
        if isinstance(place.node, ast.Attribute):
            return f"(lambda value, it: {call})({self._text(value)}, {self._text(owner)})"
        return f"(lambda it, value: {call})({self._text(owner)}, {self._text(value)})"

    def _names(self, value: ast.expr, place: Place) -> str:
        """A dict with the name that the callee takes."""
        if owner := self._name_read(value, of_vllm=True):
            return f'{{"{NEW}": {owner}.{NEW}}} if hasattr({owner}, "{NEW}") else {{"{OLD}": {owner}.{OLD}}}'
        accepts = f'"{NEW}" in {self.inspect}.signature({self._callee(place)}).parameters'
        return f'{{"{NEW}": {self._inverted(value)}}} if {accepts} else {{"{OLD}": {self._text(value)}}}'

    def _inverted(self, value: ast.expr) -> str:
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            return str(not value.value)
        if owner := self._name_read(value, of_vllm=False):
            return f'({owner}.{NEW} if hasattr({owner}, "{NEW}") else not {owner}.{OLD})'
        return f"not ({self._text(value)})"

    def _name_read(self, value: ast.expr, *, of_vllm: bool) -> str:
        """The name of which the value reads the setting, "" when it is something else."""
        for place in self.places:
            match place:
                case Place(kind="read", node=node, owner=ast.Name(id=name), value=None) if node is value:
                    return name if id(node) in self.known or not of_vllm else ""
        return ""

    def _callee(self, place: Place) -> str:
        """The text of what is called with the argument: directly, or with the dict in which it stands."""
        call = place.above[0]
        if place.kind == "keyword" and isinstance(call, ast.Call) and not _is_dict(call.func):
            if not dotted(call.func):
                raise self._no(place, "what is called is itself computed, and that would be done twice")
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
            raise self._no(place, "what takes this dict cannot be told")
        return callee


def _choice_of_read(owner: str, default: str) -> str:
    old = f'getattr({owner}, "{OLD}", {default})' if default else f"{owner}.{OLD}"
    return f'not {owner}.{NEW} if hasattr({owner}, "{NEW}") else {old}'


def _is_dict(function: ast.expr) -> bool:
    """Whether a call only makes or fills a dict: `dict(...)`, `kwargs.update(...)`."""
    return dotted(function) == "dict" or (isinstance(function, ast.Attribute) and function.attr == "update")


def _held_by(place: Place) -> str:
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


def _spreads(keyword: ast.keyword, name: str, place: Place) -> bool:
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
