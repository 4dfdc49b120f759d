"""How a source tree calls a method.

Every call by that name, with the enclosing function and the conditions around it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import (
    SourceTree,
    Unreadable,
    dotted,
    parse,
    read,
    text_of,
    walk,
)

# The name of a method that is called in more files than this is too common to be useful.
_MOST_FILES = 40


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call `receiver.method(...)`. `function` and `in_class` enclose it, "" for none.

    `when` are the conditions between the function and the call, and around the places that name the function
    in its module, unless one of these is unconditional.
    """

    module: str
    path: str
    node: ast.Call
    function: ast.FunctionDef | ast.AsyncFunctionDef | None
    in_class: str
    when: tuple[str, ...]

    @property
    def receiver(self) -> str:
        """The last name of what the method is called on: "model_executor" of `self.model_executor.step()`."""
        owner = self.node.func.value if isinstance(self.node.func, ast.Attribute) else None
        if isinstance(owner, ast.Call):
            return dotted(owner.func)
        return dotted(owner).rpartition(".")[2]

    @property
    def name(self) -> str:
        """The enclosing function, as people write it."""
        inner = self.function.name if self.function is not None else "<module>"
        return f"{self.in_class}.{inner}" if self.in_class else inner


class Callers:
    """A source tree's calls of methods, looked up by name. Its files are read once, and cached."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._modules: dict[Path, ast.Module | Unreadable] = {}

    @cached_property
    def _sources(self) -> list[tuple[Path, bytes]]:
        return [(path, source) for path in self._tree.files() if isinstance(source := read(path), bytes)]

    def sites(self, method: str, also: str = "") -> list[CallSite] | None:
        """Return every call of a method of this name in the files that also hold the text `also`.

        None when these are too many.

        A method that is passed on, to be called elsewhere, counts as a call with unknown arguments.
        """
        pattern = re.compile(rb"\." + re.escape(method).encode() + rb"\b")
        files = [
            (path, source)
            for path, source in self._sources
            if also.encode() in source and pattern.search(source)
        ]
        if len(files) > _MOST_FILES:
            return None
        found: list[CallSite] = []
        for path, source in files:
            if path not in self._modules:
                self._modules[path] = parse(source, path)
            module = self._modules[path]
            if isinstance(module, ast.Module):
                found += _Calls(method, self._tree.name_of(path) or "", str(path)).of(module)
        return found


class _Calls:
    """Walks one module with the classes, functions and conditions around each node."""

    def __init__(self, method: str, module: str, path: str) -> None:
        self.method, self.module, self.path = method, module, path
        self.found: list[CallSite] = []
        self.named: dict[str, list[tuple[str, ...]]] = {}
        self.defaults: set[str] = set()
        self.called: set[ast.Attribute] = set()

    def of(self, module: ast.Module) -> Iterator[CallSite]:
        self.defaults = set(_none_at_first(module))
        self._visit(module, None, "", ())
        for site in self.found:
            name = site.function.name if site.function is not None else ""
            around = min(self.named.get(name, [()]), key=len)
            yield CallSite(
                site.module, site.path, site.node, site.function, site.in_class, (*around, *site.when)
            )

    def _visit(
        self,
        node: ast.AST,
        function: ast.FunctionDef | ast.AsyncFunctionDef | None,
        in_class: str,
        when: tuple[str, ...],
    ) -> None:
        match node:
            case ast.ClassDef(name=name):
                in_class, function = name, None
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                function, when = function or node, when if function else ()
            case ast.If(test=test) | ast.IfExp(test=test):
                self._visit(test, function, in_class, when)
                for part in _listed(node.body):
                    self._visit(part, function, in_class, (*when, *self._conditions(test, holds=True)))
                for part in _listed(node.orelse):
                    self._visit(part, function, in_class, (*when, *self._conditions(test, holds=False)))
                return
            case ast.Attribute(attr=name) | ast.Name(id=name):
                self.named.setdefault(name, []).append(when)
            case ast.Call(func=ast.Attribute(attr=self.method) as called):
                self.called.add(called)
                self.found.append(CallSite(self.module, self.path, node, function, in_class, when))
        if isinstance(node, ast.Attribute) and node.attr == self.method and node not in self.called:
            self.found.append(CallSite(self.module, self.path, _any_call(node), function, in_class, when))
        for child in ast.iter_child_nodes(node):
            self._visit(child, function, in_class, when)

    def _conditions(self, test: ast.expr, *, holds: bool) -> tuple[str, ...]:
        """Return a condition as text, none when it holds by default (`self.queue is None`, None at first)."""
        match test:
            case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                if dotted(left) in self.defaults and holds:
                    return ()
        return (text_of(test) if holds else f"not ({text_of(test)})",)


def _any_call(method: ast.Attribute) -> ast.Call:
    """Return a call of which only the method is known."""
    rest = ast.Name("_", ast.Load())
    call = ast.Call(method, [ast.Starred(rest, ast.Load())], [ast.keyword(None, rest)])
    return ast.fix_missing_locations(ast.copy_location(call, method))


def _none_at_first(module: ast.Module) -> Iterator[str]:
    """Yield the attributes that a constructor sets to None before anything else."""
    for node in walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            for statement in node.body:
                match statement:
                    case ast.Assign(targets=[ast.Attribute() as target], value=ast.Constant(value=None)):
                        yield dotted(target)
                    case ast.AnnAssign(target=ast.Attribute() as target, value=ast.Constant(value=None)):
                        yield dotted(target)


def _listed(part: list[ast.stmt] | ast.expr) -> list[ast.stmt] | list[ast.expr]:
    return part if isinstance(part, list) else [part]
