"""A command's argument parser options, from the `add_argument` calls of the modules that build it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.sources.python.source import SourceTree, Unreadable, dotted, parse, read, walk
from verl_doctor.toolkit.sources.python.summary import absolute

_DEFINES = (b".add_argument(", b"add_cli_args(")
_OPTION = re.compile(r"--[a-z][a-z0-9_-]*")
_MAKES_FIELDS = ("dataclass", "config")


@dataclass(frozen=True)
class ParserOptions:
    """The long options ("--max-model-len"), and the file that defines most of them.

    `complete` is False when some are created in a way that cannot be read.
    """

    names: frozenset[str]
    path: str
    complete: bool = True

    def takes(self, option: str) -> bool:
        """Return whether argparse accepts an option: as is, with `_` for `-`, abbreviated, or `--no-`.

        The latter negates it.
        """
        spelled = option.replace("_", "-")
        plain = "--" + spelled.removeprefix("--no-") if spelled.startswith("--no-") else spelled
        return any(name.startswith(spelled) or name == plain for name in self.names)


def parser_options(tree: SourceTree, command: str) -> ParserOptions | None:
    """Read a command's options from its module and those that it imports for this purpose.

    None when the module does not exist, or one of them cannot be read.
    """
    names: set[str] = {"--help"}
    complete, most, path = True, 0, ""
    waiting, seen = [command], {command}
    while waiting:
        module = waiting.pop()
        file = tree.locate(module)
        if file is None or file.kind not in {"module", "package"}:
            if module == command:
                return None
            continue
        source = read(file.path)
        if isinstance(source, Unreadable):
            return None
        if module != command and not any(word in source for word in _DEFINES):
            continue
        parsed = parse(source, file.path)
        if isinstance(parsed, Unreadable):
            return None
        found = list(_defined(parsed))
        complete = complete and None not in found
        names |= {name for name in found if name is not None}
        if len(found) > most:
            most, path = len(found), str(file.path)
        for name in _imported(parsed, file.package):
            own = tree.own_name(name)
            if own is not None and own not in seen:
                seen.add(own)
                waiting.append(own)
    return ParserOptions(frozenset(names), path, complete)


def _defined(module: ast.Module) -> Iterator[str | None]:
    """Yield the long options that a module's `add_argument` calls define. None stands for unknown ones."""
    for node in walk(module):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="add_argument")):
                continue  # a parser's own method, which passes its arguments on
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=[*given]):
                for name in given:
                    match name:
                        case ast.Constant(value=str(text)) if text.startswith("--"):
                            yield text.replace("_", "-")
                        case ast.Constant():
                            continue
                        case ast.JoinedStr():
                            yield from _fields(module) or [None]
                        case ast.Name() | ast.Starred():
                            yield from _from_variable(module) or [None]
                        case _:
                            yield None


def _from_variable(module: ast.Module) -> list[str | None]:
    """Return the options whose names come from a variable and are written somewhere in the module."""
    return [
        node.value.replace("_", "-")
        for node in walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _OPTION.fullmatch(node.value)
    ]


def _fields(module: ast.Module) -> list[str | None]:
    """Return options created in a loop over the fields of the module's own dataclasses."""
    return [
        f"--{field.target.id.replace('_', '-')}"
        for node in module.body
        if isinstance(node, ast.ClassDef) and any(map(_makes_fields, node.decorator_list))
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]


def _makes_fields(decorator: ast.expr) -> bool:
    name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.rpartition(".")[2] in _MAKES_FIELDS


def _imported(module: ast.Module, package: str) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.ImportFrom):
            yield absolute(node, package)
