"""Options for another package's command line: `["serve", model]`, and `--{key}` for the keys of a dict."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.collectors.api.calls import Keyword, nearest
from verl_doctor.toolkit.collectors.api.spread import Placed, Spreads
from verl_doctor.toolkit.collectors.api.use import Context, position
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.source import Unreadable, parse, read, walk
from verl_doctor.toolkit.sources.python.symbols import Function

COMMANDS = {"vllm": "vllm.entrypoints.cli.serve"}
"""The module in which a package builds the parser of the command that verl starts."""

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_PARSES = frozenset({"parse_args", "parse_known_args"})
_GROWS = frozenset({"append", "extend"})


def options_given(
    function: _FunctionNode, call: ast.Call, context: Context, reader: ValueReader, spreads: Spreads
) -> Iterator[Placed]:
    """Yield the options in the list that `call` parses, each with the conditions under which it is added.

    The function has been read before, so `spreads` holds the contents of its dicts. An option set to False or
    None is left out: the value switches it off.
    """
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "args"), None)
    given = given or (call.args[0] if call.args else None)
    if not isinstance(given, ast.Name):
        return
    for part in _parts(function, given.id):
        for node in walk(part):
            match node:
                case ast.Constant(value=str(text)) if text.startswith("--"):
                    yield context, Keyword(text.partition("=")[0], position(node))
                case ast.Call(args=[ast.Name() as held]) if _spells_options(
                    reader.value(node.func, context.scope), reader
                ):
                    yield from _keys(held, context, spreads)
    for held in _looped(function, given.id):
        yield from _keys(held, context, spreads)


def nearest_option(option: str, taken: Iterable[str]) -> str:
    """Return the most similar option to an option that is not accepted."""
    words = {name.removeprefix("--").replace("-", "_"): name for name in sorted(taken)}
    return words.get(nearest(option.removeprefix("--").replace("-", "_"), words), "")


def parses(node: ast.Call) -> bool:
    """Return whether a call has a parser read a list of words."""
    return isinstance(node.func, ast.Attribute) and node.func.attr in _PARSES


def _parts(function: _FunctionNode, name: str) -> Iterator[ast.expr]:
    """Yield the expressions that create or extend a list."""
    for node in walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.AugAssign(target=ast.Name(id=target), value=value) if target == name:
                yield value
            case ast.Call(func=ast.Attribute(value=ast.Name(id=target), attr=attr), args=[value]):
                if target == name and attr in _GROWS:
                    yield value


def _looped(function: _FunctionNode, name: str) -> Iterator[ast.Name]:
    """Yield the dicts whose keys a loop adds to the list.

    An example is `for k, v in args.items(): words.append(f"--{k}")`.
    """
    for node in walk(function):
        match node:
            case ast.For(iter=ast.Call(func=ast.Attribute(value=ast.Name() as held, attr="items"))):
                if any(_is_option(part) for inner in node.body for part in _added(inner, name)):
                    yield held


def _added(statement: ast.stmt, name: str) -> Iterator[ast.expr]:
    for node in walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=target), attr="append"), args=[value]):
                if target == name:
                    yield value


def _is_option(node: ast.expr) -> bool:
    """Return whether an expression turns a name into an option: `f"--{key}"`."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value="--"), ast.FormattedValue(), *_]):
            return True
    return False


def _keys(held: ast.Name, context: Context, spreads: Spreads) -> Iterator[Placed]:
    """Yield the options made from the keys of a dict."""
    for where, entry in spreads.held(held.id, context):
        if not (isinstance(entry.value, ast.Constant) and entry.value.value in (False, None)):
            yield where, Keyword(f"--{entry.name}", entry.at)


def _spells_options(callee: object, reader: ValueReader) -> bool:
    """Return whether a function of the examined tree turns the keys of its argument into options."""
    file = reader.sources.file_of(callee.module) if isinstance(callee, Function) else None
    source = read(file.path) if file is not None and file.kind in {"module", "package"} else None
    if source is None or isinstance(source, Unreadable) or file is None:
        return False
    module = parse(source, file.path)
    for node in module.body if isinstance(module, ast.Module) else ():
        if isinstance(node, ast.FunctionDef) and isinstance(callee, Function) and node.name == callee.name:
            return any(_is_option(part) for part in walk(node) if isinstance(part, ast.expr))
    return False
