"""Classes that extend another package's class, and whether their methods accept its code's arguments.

An override is judged by the calls that the package makes of the method, not by its signature alone: a
parameter that is never passed breaks nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.collectors.api.calls import Fit, Keyword, keyword_fit, places_fit
from verl_doctor.toolkit.collectors.api.guards import judge
from verl_doctor.toolkit.collectors.api.use import Resolution, position
from verl_doctor.toolkit.collectors.api.value import Scope
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.answers import Present
from verl_doctor.toolkit.sources.python.callers import Callers, CallSite
from verl_doctor.toolkit.sources.python.classes import mro
from verl_doctor.toolkit.sources.python.source import dotted, walk
from verl_doctor.toolkit.sources.python.summary_class import function_of
from verl_doctor.toolkit.sources.python.symbols import Class, Function, Signature

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_WORD = re.compile(r"[A-Z][a-z0-9]+")
_OF_A_FUTURE = frozenset({"add_done_callback", "done", "exception", "result"})
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result for one method. `name` is the base's method, with the offending parameter if there is one.

    `kind` is "override", "abstract" (the class lacks the method and cannot be instantiated), or "result" (the
    package relies on a parameter that the override ignores). `when` are conditions under which the package
    makes such a call.
    """

    kind: Literal["override", "abstract", "result"]
    method: str
    name: str
    at: tuple[int, int]
    resolution: Resolution
    wanted: str = ""
    reason: str = ""
    read_from: str = ""
    when: tuple[str, ...] = ()


class Extension:
    """A class of the examined tree, its methods, and the classes of other packages that it extends.

    `callers` caches the lookups in each package; classes of one module share it.
    """

    def __init__(
        self, node: ast.ClassDef, reader: ValueReader, scope: Scope, callers: dict[str, Callers]
    ) -> None:
        self.node, self.reader, self.callers = node, reader, callers
        self.methods = dict(_methods(node.body, reader, scope))
        answer = reader.sources.member(reader.module, node.name)
        made = answer.definition if isinstance(answer, Present) else None
        parts = list(mro(reader.sources, made)) if isinstance(made, Class) else []
        self.known = None not in parts
        self.ancestors = [part for part in parts if isinstance(part, Class) and part is not made]
        self.bases = [part for part in self.ancestors if part.module.partition(".")[0] in reader.versions]
        self.words = {word.lower() for part in self.bases for word in _WORD.findall(part.name)[-1:]}

    def judged(self) -> Iterator[Judgement]:
        """Judge each method that a base has, and those that must be defined."""
        for name, node in self.methods.items():
            for base in self.bases:
                inherited = base.members.get(name)
                if inherited is not None:
                    if isinstance(inherited, Function) and not name.startswith("__"):
                        yield from self._override(node, base, inherited)
                    break
        if self.bases and self.known and not self._is_abstract():
            yield from self._abstract()

    def _is_abstract(self) -> bool:
        """Return whether the class is itself only meant to be extended, so that it is never instantiated."""
        named = {dotted(base).rpartition(".")[2] for base in self.node.bases}
        own = (function_of(node, self.reader.module.name, in_class=True) for node in self.methods.values())
        return "ABC" in named or any(function.abstract for function in own)

    def _abstract(self) -> Iterator[Judgement]:
        provided = set(self.methods) | set(_assigned(self.node))
        for part in self.ancestors:
            for name, found in part.members.items():
                if isinstance(found, Function) and found.abstract and name not in provided:
                    yield Judgement(
                        "abstract",
                        "__init__",
                        f"{part.dotted}.{name}",
                        (self.node.lineno, self.node.col_offset),
                        "missing",
                        reason=f"{part.name}.{name} is abstract",
                        read_from=self._path(part),
                    )
                provided.add(name)

    def _override(self, node: _FunctionNode, base: Class, inherited: Function) -> Iterator[Judgement]:
        own = function_of(node, self.reader.module.name, in_class=True)
        ours, theirs = _bound(own), _bound(inherited)
        if ours is None or theirs is None or "property" in {own.role, inherited.role}:
            return
        name, at, path = f"{base.dotted}.{node.name}", (node.lineno, node.col_offset), self._path(base)
        misfit = self._misfit(base, node.name, ours, theirs) if _narrower(ours, theirs) else None
        if isinstance(misfit, str):
            yield Judgement("override", node.name, name, at, "unknown", reason=misfit, read_from=path)
        elif misfit is not None:
            fit, site, when = misfit
            yield Judgement(
                "override",
                node.name,
                f"{name}({fit.name})",
                at,
                "missing",
                _shown(theirs),
                _complaint(site, fit),
                f"{site.path}:{site.node.lineno}",
                when,
            )
        else:
            yield Judgement("override", node.name, name, at, "present")
        for parameter in theirs.parameters:
            if _passes_over(node, parameter.name):
                yield from self._result(base, node, parameter.name, name)

    def _misfit(
        self, base: Class, method: str, ours: Signature, theirs: Signature
    ) -> tuple[Fit, CallSite, tuple[str, ...]] | str | None:
        """Return the call that fits the base's method but not the override; None if there is none.

        Of several such calls, it is the one under the fewest conditions.

        A string is the reason why the calls are not judged.
        """
        sites = self._sites(base, method)
        if sites is None:
            return f"{method}() is called in too many places of {base.module.partition('.')[0]}"
        found = [
            (fit, site, self._conditions(base, site))
            for site in sites
            if not any(_mismatches(site.node, theirs)) and (fit := next(_mismatches(site.node, ours), None))
        ]
        return min(found, key=lambda entry: len(entry[2]), default=None)

    def _result(self, base: Class, node: _FunctionNode, parameter: str, name: str) -> Iterator[Judgement]:
        """Check whether the package sets the parameter and uses the result as a future.

        It does the latter if it uses an attribute of the result that only a future has.
        """
        found = list(self._futures(base, node.name, parameter, 0))
        if found:
            site, methods, when = min(found, key=lambda entry: len(entry[2]))
            yield Judgement(
                "result",
                node.name,
                f"{name}({parameter})",
                (node.lineno, node.col_offset),
                "unknown" if when else "missing",
                "concurrent.futures.Future",
                (
                    f"{site.name}() sets {parameter} and calls {methods}() on the result, but the override "
                    "ignores the parameter"
                ),
                f"{site.path}:{site.node.lineno}",
                when,
            )

    def _futures(
        self, base: Class, method: str, parameter: str, depth: int
    ) -> Iterator[tuple[CallSite, str, tuple[str, ...]]]:
        """Yield the calls that set a parameter to True and treat the result as a future.

        Methods that pass it on are followed.
        """
        for site in self._sites(base, method, parameter) or () if depth < _DEEPEST else ():
            value = next((entry.value for entry in site.node.keywords if entry.arg == parameter), None)
            match value:
                case ast.Constant(value=True) if methods := _attributes_read(site) & _OF_A_FUTURE:
                    yield site, min(methods), self._conditions(base, site)
                case ast.Name(id=name) if site.function is not None and site.receiver == "self":
                    if name in {argument.arg for argument in _arguments(site.function)}:
                        yield from self._futures(base, site.function.name, name, depth + 1)

    def _sites(self, base: Class, method: str, also: str = "") -> list[CallSite] | None:
        """Return the package's calls of a method that reach the override.

        They are calls on `self` in inherited code, or by name.
        """
        package = base.module.partition(".")[0]
        tree = self.reader.sources.tree_of(base.module)
        if package not in self.callers and tree is not None:
            self.callers[package] = Callers(tree)
        sites = self.callers[package].sites(method, also) if package in self.callers else []
        return None if sites is None else [site for site in sites if self._reaches(site)]

    def _reaches(self, site: CallSite) -> bool:
        if site.receiver in {"self", "cls"}:
            inside = f"{site.module}.{site.in_class}" in {part.dotted for part in self.bases}
            return inside and (site.function is None or site.function.name not in self.methods)
        return bool(self.words & set(site.receiver.lower().split("_")))

    def _conditions(self, base: Class, site: CallSite, depth: int = 0) -> tuple[str, ...]:
        """Return the conditions under which a call is made.

        A call in an inherited method is made when that method is called.
        """
        if site.receiver not in {"self", "cls"} or site.function is None:
            return site.when
        above = self._sites(base, site.function.name) if depth < _DEEPEST else None
        found = [self._conditions(base, caller, depth + 1) for caller in above or ()]
        return (*min(found, key=len, default=(f"{site.name}() is called",)), *site.when)

    def _path(self, owner: Class) -> str:
        file = self.reader.sources.file_of(owner.module)
        return str(file.path) if file is not None else ""


def _methods(body: list[ast.stmt], reader: ValueReader, scope: Scope) -> Iterator[tuple[str, _FunctionNode]]:
    """Yield the methods that a class has with the installed library, even below an undecided condition."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node
            case ast.If(test=test):
                holds = judge(test, reader, scope).holds
                yield from _methods(node.body if holds is not False else [], reader, scope)
                yield from _methods(node.orelse if holds is not True else [], reader, scope)


def _assigned(node: ast.ClassDef) -> Iterator[str]:
    """Yield names that a class body binds other than by a plain definition, also in a `try` or a tuple."""
    waiting: list[ast.AST] = [*node.body]
    while waiting:
        match waiting.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case other:
                waiting += ast.iter_child_nodes(other)


def _bound(function: Function) -> Signature | None:
    """Return the signature without `self` or `cls`."""
    if function.signature is None or function.role == "staticmethod":
        return function.signature
    return function.signature.without_first()


def _narrower(ours: Signature, theirs: Signature) -> bool:
    """Return whether an override's signature is narrower than the base's.

    It may receive an argument that it does not accept, or lack one that it requires.
    """
    names = {parameter.name for parameter in ours.parameters}
    inherited = {parameter.name for parameter in theirs.parameters}
    lacking = not ours.more_keywords and bool(inherited - names)
    fewer = not ours.more_positional and _places(ours) < _places(theirs)
    return lacking or fewer or any(part.required and part.name not in inherited for part in ours.parameters)


def _places(signature: Signature) -> int:
    return sum(parameter.kind != "keyword" for parameter in signature.parameters)


def _mismatches(call: ast.Call, signature: Signature) -> Iterator[Fit]:
    """Yield the arguments of a call that a signature does not accept."""
    named = [Keyword(entry.arg, position(entry)) for entry in call.keywords if entry.arg is not None]
    all_known = len(named) == len(call.keywords)
    for given in named:
        if not (fit := keyword_fit(given, signature)).fits:
            yield fit
    yield from (
        fit
        for fit in places_fit(call, named, signature, all_known=all_known)
        if not fit.fits and fit.kind != "meaning"
    )


def _complaint(site: CallSite, fit: Fit) -> str:
    if fit.kind == "required":
        return f"{site.name}() does not pass {fit.name}, which it requires"
    what = f"{fit.name} positional arguments, more than it accepts" if fit.kind == "positional" else fit.name
    return f"{site.name}() passes it {what}" + (
        "" if fit.kind == "positional" else ", which it does not accept"
    )


def _passes_over(node: _FunctionNode, parameter: str) -> bool:
    """Return whether a method accepts a parameter, by name or in its `**kwargs`, and never uses it."""
    names = {argument.arg for argument in _arguments(node)}
    rest = node.args.kwarg.arg if node.args.kwarg is not None else ""
    holder = parameter if parameter in names else rest
    return bool(holder) and not any(
        isinstance(part, ast.Name) and part.id == holder
        for statement in node.body
        for part in walk(statement)
    )


def _arguments(node: _FunctionNode) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _attributes_read(site: CallSite) -> set[str]:
    """Return the attributes of a call's result that the surrounding function reads."""
    names = set()
    for node in walk(site.function) if site.function is not None else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is site.node:
                names.add(name)
    return {
        node.attr
        for node in (walk(site.function) if site.function is not None else ())
        if isinstance(node, ast.Attribute)
        and (node.value is site.node or (isinstance(node.value, ast.Name) and node.value.id in names))
    }


def _shown(signature: Signature) -> str:
    return ", ".join(parameter.name for parameter in signature.parameters)
