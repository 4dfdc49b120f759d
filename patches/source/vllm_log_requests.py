"""Fix for VLLM101: use `enable_log_requests` where vLLM has it, `disable_log_requests` where it does not.

Plain calls, reads and stores are repaired, any other use that could break is refused, and the edited source
is read again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from verl_doctor.checks.api._vllm_renames import LOG_REQUESTS
from verl_doctor.patches.shared.edited_files import edited_sources, paths_of
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.source import dotted, text_of

OLD, NEW = LOG_REQUESTS.old, LOG_REQUESTS.new
_Replaced = ast.Attribute | ast.Assign | ast.keyword


@dataclass(frozen=True)
class _Use:
    """One use of the old name in code, and the nodes around it, innermost first."""

    node: ast.expr | ast.keyword | ast.pattern | ast.stmt
    above: tuple[ast.AST, ...]


@fix(
    "vllm-log-requests",
    repairs=LOG_REQUESTS.code,
    safety="safe",
    upstream=LOG_REQUESTS.upstream,
    needed="vllm>=0.12",
    restart="running Ray workers, which keep the old code",
)
def vllm_log_requests(
    finding: Finding, uses: VllmUses, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Pass and read enable_log_requests, inverted, where this vLLM has it.

    Each place checks at run time which of the two names exists, so the edited file works with vLLM before,
    during and after the rename. An attribute is repaired whatever its owner is, because the edit only looks
    up the name.
    """

    def repaired(source: SourceText) -> bytes:
        recorded = [use for use in uses.uses if use.path == source.path and use.last == OLD]
        return _repaired(source, recorded, marker.comment(LOG_REQUESTS.code))

    return edited_sources(paths_of(finding), sources, repaired)


def _repaired(source: SourceText, recorded: list[ApiUse], comment: str) -> bytes:
    """Edit the source, then read it again: no use that fails after the rename may remain."""
    after = source.edited(_Repair(source, recorded).edits(source.tree), comment)
    left = [use.node.lineno for use in _uses(SourceText(after, source.path).tree) if not _works(use)]
    if left:
        raise CannotEdit(f"{source.path}: line {left[0]} of the edited source would still use {OLD}")
    return after


class _Repair:
    """The edits for one file. Raises CannotEdit, with the line, for a use in an unsupported form."""

    def __init__(self, source: SourceText, recorded: list[ApiUse]) -> None:
        self.source = source
        renamed = [use for use in recorded if use.now == NEW]
        self.recorded = {(use.line, use.column) for use in renamed}
        self.unknown = {(use.line, use.column): use.reason for use in recorded if use.resolution == "unknown"}
        broken = {(use.line, use.column) for use in renamed if not use.guard}
        uses = list(_uses(source.tree))
        seen = {_position(node) for use in uses for node in (use.node, use.above[0])}
        for line, _ in sorted(self.recorded - seen):
            raise CannotEdit(f"{source.path}:{line}: the file has changed since it was read")
        todo = [use for use in uses if _position(use.node) in broken or not _works(use)]
        self.replaced = dict(self._form(use) for use in todo)
        stores = [node for node in self.replaced if isinstance(node, ast.Assign)]
        for use in filter(_is_question, uses if stores else []):
            raise self._no(use, f"hasattr checks for it, but line {stores[0].lineno} would set {NEW}")

    def _no(self, use: _Use, why: str) -> CannotEdit:
        where = f"{self.source.path}:{use.node.lineno}"
        return CannotEdit(f"{where}: {OLD} is used in a form that is not repaired automatically: {why}")

    def _form(self, use: _Use) -> tuple[_Replaced, Callable[[], str]]:
        """Return the code to replace for a supported use, and the function that writes its replacement."""
        match use.node, use.above[0]:
            case _ if any(type(node).__name__ in {"JoinedStr", "TemplateStr"} for node in use.above):
                why = "inside an f-string"
            case _, ast.pattern() | ast.match_case():
                why = "in a pattern"
            case ast.Attribute(ctx=ast.Load()), _ if callee := _passed_by_position(use):
                why = f"what it means to {callee} by position is unknown"
            case ast.Attribute(ctx=ast.Load()) as read, _:
                return read, partial(self._read, read)
            case ast.Attribute(ctx=ast.Store(), value=owner), ast.Assign(targets=[_], value=value) as store:
                return store, partial(self._store, owner, value)
            case ast.keyword(value=value) as keyword, ast.Call(func=callee) as call:
                why = self._obstacle(keyword, call)
                if not why:
                    return keyword, partial(self._keyword, value, callee)
            case ast.ClassDef(name=name), _:
                why = f"class {name} has a field of that name and is derived from another"
            case _, around:
                why = text_of(around)
        raise self._no(use, why)

    def _obstacle(self, keyword: ast.keyword, call: ast.Call) -> str:
        """Why a keyword cannot be repaired; "" if it can."""
        callee = dotted(call.func)
        if _position(keyword) in self.unknown:
            return f"what {text_of(call.func)} takes is unknown, {self.unknown[_position(keyword)]}"
        if callee in {"", "dict"} or callee.endswith(".update"):
            return f"{text_of(call.func)} is not a plain name from vLLM"
        if _position(keyword) not in self.recorded:
            return f"{callee} is not known to be of vLLM and to take it"
        stars = [argument for argument in call.args if isinstance(argument, ast.Starred)]
        if any(_position(star) > _position(keyword) for star in stars):
            return "an argument with * follows it"
        return f"the same call passes {NEW}" if any(keyword_.arg == NEW for keyword_ in call.keywords) else ""

    def edits(self, node: ast.AST) -> Iterator[Edit]:
        """Yield one edit for each outermost use below a node; uses inside it are part of its text."""
        if isinstance(node, _Replaced) and node in self.replaced:
            yield Edit(self.source.start(node), self.source.end(node), self.replaced[node]())
        else:
            for child in ast.iter_child_nodes(node):
                yield from self.edits(child)

    def _text(self, node: ast.expr) -> str:
        """Return an expression's text, with the uses inside it repaired, to be placed inside brackets."""
        text, begin = self.source.of(node), self.source.start(node)
        for edit in sorted(self.edits(node), key=lambda edit: edit.start, reverse=True):
            text = text[: edit.start - begin] + edit.text + text[edit.end - begin :]
        bare = isinstance(node, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Tuple))
        return f"({text})" if bare else text

    def _read(self, node: ast.Attribute) -> str:
        """A conditional expression. A computed owner is passed to a lambda, to be computed only once."""
        owner = node.value
        name = owner.id if isinstance(owner, ast.Name) else "it"
        read = f'not {name}.{NEW} if hasattr({name}, "{NEW}") else {name}.{OLD}'
        if _position(node) not in self.recorded:  # perhaps an object of verl's own, which may accept any name
            read = f'{name}.{OLD} if hasattr({name}, "{OLD}") else not {name}.{NEW}'
        return f"({read})" if isinstance(owner, ast.Name) else f"(lambda it: {read})({self._text(owner)})"

    def _store(self, owner: ast.expr, value: ast.expr) -> str:
        """A call of setattr.

        A computed owner is passed to a lambda, after the value, in Python's order of evaluation.
        """
        name, other, same = "it", "not value", "value"
        if isinstance(owner, ast.Name):
            name, other, same = owner.id, self._inverted(value), self._text(value)
        call = f'setattr({name}, *(("{NEW}", {other}) if hasattr({name}, "{NEW}") else ("{OLD}", {same})))'
        computed = f"(lambda value, it: {call})({self._text(value)}, {self._text(owner)})"
        return call if isinstance(owner, ast.Name) else computed

    def _keyword(self, value: ast.expr, callee: ast.expr) -> str:
        """A dict with the accepted name.

        It is the name of vLLM's own object if the value is read from it, otherwise that of the callee.
        """
        other, same = self._inverted(value), self._text(value)
        condition = f'"{NEW}" in __import__("inspect").signature({self._text(callee)}).parameters'
        if (owner := self._name_read(value)) and _position(value) in self.recorded:
            other, same, condition = f"{owner}.{NEW}", f"{owner}.{OLD}", f'hasattr({owner}, "{NEW}")'
        return f'**({{"{NEW}": {other}}} if {condition} else {{"{OLD}": {same}}})'

    def _inverted(self, value: ast.expr) -> str:
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            return str(not value.value)
        if (owner := self._name_read(value)) and _position(value) in self.recorded:
            return f'({owner}.{NEW} if hasattr({owner}, "{NEW}") else not {owner}.{OLD})'
        return f"not ({self._text(value)})"

    def _name_read(self, value: ast.expr) -> str:
        """Return the name of the object from which a value reads the setting; "" if it is anything else."""
        owner = value.value if isinstance(value, ast.Attribute) and value in self.replaced else None
        return owner.id if isinstance(owner, ast.Name) else ""


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _passed_by_position(use: _Use) -> str:
    """Return the callee that gets the value as a positional argument; "" if there is none.

    The result is also "" if the callee only prints or logs the value.
    """
    for inner, around in zip((use.node, *use.above), use.above, strict=False):
        if isinstance(around, ast.Call) and inner in around.args:
            callee = text_of(around.func)
            return "" if callee in {"bool", "print"} or callee.startswith("logg") else callee
        if not isinstance(around, (ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.NamedExpr)):
            return ""
    return ""


# --- the uses, and those that work on both sides of the rename without an edit


def _uses(node: ast.AST, *above: ast.AST) -> Iterator[_Use]:
    """Yield every use of the old name in code. A parameter or a variable of that name does not count."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Attribute(attr=name) | ast.keyword(arg=name) if name == OLD:
                yield _Use(child, (node, *above))
            case ast.Constant(value=str(text)) if OLD in text.split(".") and not isinstance(node, ast.Expr):
                yield _Use(child, (node, *above))
            case ast.MatchClass(kwd_attrs=names) if OLD in names:
                yield _Use(child, (node, *above))
            case ast.ClassDef(bases=[_, *_]) if _has_field(child):
                yield _Use(child, (node, *above))
        yield from _uses(child, node, *above)


def _works(use: _Use) -> bool:
    """Return whether a use needs no edit.

    It only tests for the name, is guarded, is of verl's own `self`, or is what this fix has written.
    """
    match use.node, use.above:
        case ast.Attribute(value=ast.Name(id=owner)), above:
            return _guarded(use, owner) or (owner == "self" and _is_of_own_class(above))
        case ast.Constant(), [ast.Dict() | ast.Tuple() as names, ast.IfExp(test=test, orelse=other), *_]:
            written = rf"hasattr\(\w+, '{NEW}'\)|'{NEW}' in \S+\.parameters"
            return names is other and re.fullmatch(written, ast.unparse(test)) is not None
    return _is_question(use)


def _is_question(use: _Use) -> bool:
    call = use.above[0]
    return (
        isinstance(use.node, ast.Constant) and isinstance(call, ast.Call) and dotted(call.func) == "hasattr"
    )


def _guarded(use: _Use, owner: str) -> bool:
    """Return whether an attribute is read only below a matching `hasattr`.

    The test found that the owner has the old name, or lacks the new name.
    """
    for inner, around in zip((use.node, *use.above), use.above, strict=False):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return False
        if isinstance(around, (ast.If, ast.IfExp)) and inner is not around.test:
            met = inner is around.body or (isinstance(around, ast.If) and inner in around.body)
            right = f"hasattr({owner}, '{OLD if met else NEW}')"
            if ast.unparse(around.test) == right and owner not in _bound(around):
                return True
    return False


def _bound(node: ast.AST) -> set[str]:
    """Return the names and attributes that are assigned below a node."""
    names = (part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute)))
    return {dotted(part) for part in names if isinstance(part.ctx, ast.Store)}


def _is_of_own_class(above: tuple[ast.AST, ...]) -> bool:
    """Return whether the enclosing class defines the old name itself: it has no base class."""
    for node in above:
        if isinstance(node, ast.ClassDef):
            bound = _bound(node)
            return not node.bases and "self" not in bound and (_has_field(node) or f"self.{OLD}" in bound)
    return False


def _has_field(node: ast.ClassDef) -> bool:
    parts = (part for statement in node.body for part in (statement, *ast.iter_child_nodes(statement)))
    return any(OLD in (getattr(part, "id", ""), getattr(part, "name", "")) for part in parts)
