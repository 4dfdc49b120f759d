"""Fix for VLLM109: an override called without blocking accepts `non_block` and returns completed futures.

It still does its work immediately; only the result has the form that vLLM waits for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.patches.shared.edited_files import edited_sources, paths_of
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.source import parse, walk

CODE = "VLLM109"
ASKED = "non_block"
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DONE = '(lambda future: future.set_result({0}) or future)(__import__("concurrent.futures").futures.Future())'


@fix(
    "future-from-override",
    repairs=CODE,
    safety="safe",
    upstream="verl-project/verl#4504; verl does the same since 0.7.0",
    needed="vllm>=0.11.0, whose Executor.collective_rpc has non_block",
    restart="running Ray workers, which keep the old code",
)
def future_from_override(
    finding: Finding, uses: VllmUses, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Accept non_block in an override, and return completed futures if it is set.

    The base class shows whether vLLM waits for one future or takes the first of several. A parameter with
    another name is refused, because its meaning is unknown.
    """
    places = {(p.path, p.line) for p in (finding.location, *finding.also) if p is not None}
    found = [
        use for use in uses.uses if use.breaks and use.kind in _FIXABLE and (use.path, use.line) in places
    ]

    def edit(source: SourceText) -> bytes:
        here = [use for use in found if use.path == source.path]
        edits = [part for use in here for part in _edits(source, use, _waits(use, uses, sources))]
        return source.edited(edits, marker.comment(CODE))

    return edited_sources(paths_of(finding), sources, edit)


_FIXABLE = frozenset({"override", "result"})


def _waits(use: ApiUse, uses: VllmUses, sources: SourceFiles) -> str:
    """Return what the base class does with the result: "each" or "whole".

    It is "each" if the class takes one of several, and "whole" if it passes the result on.

    Raises CannotEdit if the base class does not show it.
    """
    base, _, method = use.name.partition("(")[0].rpartition(".")
    module, _, name = base.rpartition(".")
    path = Path(uses.library.folder).joinpath(*module.split(".")[1:]).with_suffix(".py")
    source = sources.read(str(path))
    tree = parse(source, path) if isinstance(source, bytes) else source
    ways = {
        how
        for node in (tree.body if isinstance(tree, ast.Module) else ())
        if isinstance(node, ast.ClassDef) and node.name == name
        for part in node.body
        if isinstance(part, ast.FunctionDef)
        for how in _handed_on(part, method)
    }
    if len(ways) != 1:
        raise CannotEdit(f"{path}: unknown what {name} does with the result of {method}()")
    return ways.pop()


def _handed_on(node: ast.FunctionDef, method: str) -> Iterator[str]:
    """Yield how a method of the base class uses the result of the call to which it passes `non_block`."""
    names = set()
    for part in walk(node):
        match part:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _passes_on(value, method):
                names.add(name)
            case ast.Return(value=ast.expr() as value) if _passes_on(value, method):
                yield "whole"
            case ast.Return(value=ast.Subscript(value=inner)) if _passes_on(inner, method):
                yield "each"
    for part in walk(node):
        match part:
            case ast.Return(value=ast.Subscript(value=ast.Name(id=name))) if name in names:
                yield "each"
            case ast.Return(value=ast.Name(id=name)) if name in names:
                yield "whole"


def _passes_on(value: ast.expr, method: str) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name), keywords=keywords):
            return name == method and any(entry.arg == ASKED for entry in keywords)
    return False


def _edits(source: SourceText, use: ApiUse, waits: str) -> Iterator[Edit]:
    """Yield the edits of one override.

    Raises CannotEdit, with the line, for a function in an unsupported form.
    """
    where = f"{source.path}:{use.line}"
    parameter = use.name.rstrip(")").partition("(")[2]
    node = next((node for node in walk(source.tree) if _stands_at(node, use)), None)
    if not isinstance(node, _Function):
        raise CannotEdit(f"{where}: the file has changed since it was read")
    if parameter != ASKED:
        raise CannotEdit(f"{where}: unknown what vLLM expects of {parameter}")
    if isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(p, (ast.Yield, ast.YieldFrom)) for p in _own_nodes(node)
    ):
        raise CannotEdit(f"{where}: {node.name} is a coroutine or a generator")
    condition, insertion = _condition(source, node, where)
    if any(
        isinstance(p, ast.Name) and p.id in condition and not isinstance(p.ctx, ast.Load)
        for p in _own_nodes(node)
    ):
        raise CannotEdit(f"{where}: {node.name} rebinds {condition}")
    if not _ends(node.body):
        raise CannotEdit(f"{where}: {node.name} may end without a `return`")
    yield from insertion
    for part in _own_nodes(node):
        if isinstance(part, ast.Return):
            if part.value is None:
                raise CannotEdit(f"{source.path}:{part.lineno}: {node.name} returns nothing here")
            text = _return_value(source, part.value, condition, waits)
            yield Edit(source.start(part.value), source.end(part.value), text)


def _stands_at(node: ast.AST, use: ApiUse) -> bool:
    return isinstance(node, _Function) and (node.lineno, node.col_offset) == (use.line, use.column)


def _own_nodes(node: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, without those of a function or class inside it."""
    waiting: list[ast.AST] = [*node.body]
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(part)


def _condition(source: SourceText, node: _Function, where: str) -> tuple[str, list[Edit]]:
    """Return the expression that is true when the call must not block, and the parameter to add for it."""
    given = node.args
    if any(argument.arg == ASKED for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)):
        return ASKED, []
    if given.kwarg is not None:
        return f'{given.kwarg.arg}.get("{ASKED}")', []
    if given.posonlyargs and not (given.args or given.vararg or given.kwonlyargs):
        raise CannotEdit(f"{where}: {node.name} accepts positional arguments only")
    named = (*given.args, given.vararg, *given.kwonlyargs, *given.defaults, *given.kw_defaults)
    last = max(source.end(part) for part in named if part is not None)
    return ASKED, [Edit(last, last, f", {ASKED}=False")]


def _return_value(source: SourceText, value: ast.expr, condition: str, waits: str) -> str:
    """Return the new return value: completed futures if the call must not block, otherwise the old value."""
    text = source.of(value)
    plain = isinstance(value, ast.Name) and text != "future"  # the name that _DONE binds
    name = text if plain else "answer"
    done = f"[{_DONE.format('one')} for one in {name}]" if waits == "each" else _DONE.format(name)
    chosen = f"{done} if {condition} else {name}"
    given = f"({text})" if isinstance(value, ast.Tuple) else text  # `return a, b` returns one tuple
    return chosen if plain else f"(lambda {name}: {chosen})({given})"


def _ends(body: list[ast.stmt]) -> bool:
    """Return whether a block never continues with the code after it."""
    match body[-1]:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(body=then, orelse=otherwise):
            return bool(otherwise) and _ends(then) and _ends(otherwise)
        case ast.With(body=inner):
            return _ends(inner)
        case ast.Try(body=inner, handlers=handlers, orelse=otherwise, finalbody=final):
            finished = _ends(otherwise or inner) and all(_ends(handler.body) for handler in handlers)
            return finished or bool(final and _ends(final))
    return False
