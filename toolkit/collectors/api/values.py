"""What an examined expression stands for, as far as reading shows: a class, an instance, a version.

None means unknown. `GONE` means that the expression names something that does not exist, so that code which
tries two places is judged by the existing one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any

from packaging.version import Version

from verl_doctor.toolkit.collectors.api.bound_names import BoundNames
from verl_doctor.toolkit.collectors.api.library_calls import result_of_call, version_of
from verl_doctor.toolkit.collectors.api.signatures import fields_of
from verl_doctor.toolkit.collectors.api.surroundings import NOT_LOOKED_AT, Surroundings
from verl_doctor.toolkit.collectors.api.value import (
    GONE,
    Bound,
    Entry,
    Found,
    Gone,
    Instance,
    LocalClass,
    Probe,
    Scope,
    SelfOf,
    Value,
)
from verl_doctor.toolkit.sources.python.answers import Answer, Definition, External, Missing, Opaque, Present
from verl_doctor.toolkit.sources.python.classes import annotated, class_held, mro, named
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import dotted, text_of
from verl_doctor.toolkit.sources.python.symbols import Attribute, Class, Function, Module, Variable

_DEEPEST = 30
# A name bound in more ways than this has no single type.
_MOST_WAYS = 8
_CONTAINERS = frozenset({"set", "frozenset", "list", "tuple", "dict", "sorted"})


class ValueReader:
    """Infers values within one module.

    `versions` are those of the packages whose uses are read, "" if unknown.
    """

    def __init__(
        self,
        sources: Sources,
        module: Module,
        versions: Mapping[str, str],
        around: Surroundings = NOT_LOOKED_AT,
    ) -> None:
        self.sources = sources
        self.module = module
        self.versions = versions
        self.around = around
        self.building = 0
        self.elsewhere: Callable[[str, str], Value] = lambda _module, _name: None
        self.by_flags: Callable[[ast.expr, Scope], bool | None] = lambda _test, _scope: None
        self.by_settings: Callable[[ast.expr, Scope], bool | None] = lambda _test, _scope: None
        self.is_none: Callable[[ast.expr, Scope], bool] = lambda _node, _scope: False
        self.is_unbound: Callable[[str, Scope], bool] = lambda _name, _scope: False
        self.flag: Callable[[str, str], Any] = lambda _module, _name: UNCLEAR
        self.return_value: Callable[[ast.Call, Scope, Any], Any] = lambda _call, _scope, _by: UNCLEAR
        self.bound = BoundNames().of
        self.off: set[tuple[str, str]] = set()
        self._active: set[int] = set()
        self._circular = False  # whether the value being inferred was met within itself
        self._known: dict[tuple[int, int, bool], tuple[ast.expr, Scope, Value]] = {}

    def is_watched(self, value: Value) -> bool:
        """Return whether the value belongs to one of the examined packages."""
        match value:
            case Instance(of=kind) | Bound(owner=kind):
                return kind.module.partition(".")[0] in self.versions
            case Class(module=module) | Function(module=module) | Module(name=module):
                return module.partition(".")[0] in self.versions
        return False

    def value(self, node: ast.expr | None, scope: Scope, *, awaited: bool = False) -> Value:
        """Return the value of the expression.

        Expressions that depend on themselves or are nested too deeply are unknown.
        """
        if node is None or len(self._active) > _DEEPEST:
            return None
        if id(node) in self._active:
            self._circular = True
            return None
        key = (id(node), id(scope), awaited)
        if key in self._known:
            return self._known[key][2]
        self._active.add(id(node))
        try:
            value = self._value(node, scope, awaited=awaited)
        finally:
            self._active.discard(id(node))
        if not self._active:
            self._circular = False
        if not self.building and not self._circular:  # the contents of a half-built scope may change
            self._known[key] = (node, scope, value)
        return value

    def callee(self, node: ast.Call, scope: Scope) -> str:
        """Return the dotted name of the function of another package that is called; "" for any other."""
        callee = self.value(node.func, scope)
        return callee.dotted if isinstance(callee, External) else ""

    def _value(self, node: ast.expr, scope: Scope, *, awaited: bool) -> Value:
        match node:
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return _joined([self._part(part, scope) for part in parts])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _joined([self.value(side, scope) for side in (left, right)])
            case ast.Attribute(value=inner, attr=attr):
                return self.read(self.value(inner, scope), attr)
            case ast.Await(value=inner):
                return self.value(inner, scope, awaited=True)
            case ast.Call():
                return self._call(node, scope, awaited=awaited)
            case ast.IfExp(body=body, orelse=orelse):
                return _agreed(self.value(side, scope) for side in (body, orelse))
            case ast.NamedExpr(value=inner):
                return self.value(inner, scope)
            case ast.SetComp() | ast.ListComp() | ast.GeneratorExp():
                return self._field_names(node, scope)
        return None

    def _part(self, node: ast.expr, scope: Scope) -> Value:
        """Return the value of an f-string's part that is plain text."""
        match node:
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                return self.value(inner, scope)
        return self.value(node, scope)

    def words(self, node: ast.expr, scope: Scope) -> str:
        """Return an expression's string; in an f-string, known values are filled in, others stay as names."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(self.words(part, scope) for part in parts)
            case ast.FormattedValue(value=inner):
                value = self.value(inner, scope)
                return str(value) if isinstance(value, (str, Version)) else f"{{{text_of(inner)}}}"
        return ""

    def _name(self, name: str, scope: Scope) -> Value:
        found = scope.find(name)
        if found is None:
            answer = self.sources.member(self.module, name) if name in self.module.names else None
            return _definition(answer)
        home, entries = found
        if len(entries) > _MOST_WAYS:
            return None
        return _agreed(self._ways(entries, home))

    def _ways(self, entries: Iterable[Entry], home: Scope) -> Iterator[Value]:
        """Yield the values of a name's bindings. `x = f(x)` is left out where it is met within itself."""
        for entry in entries:
            before, self._circular = self._circular, False
            value = self.entry(entry, home)
            circular, self._circular = self._circular, self._circular or before
            if value is not None or not circular:
                yield value

    def entry(self, entry: Entry, scope: Scope) -> Value:
        """Return the value of a single binding of a name."""
        if entry.answer is not None:
            found = _definition(entry.answer())
            holds_version = "version" in entry.origin[1].lower()
            return self.elsewhere(*entry.origin) if found is None and holds_version else found
        if entry.annotation:
            return self.instance_of(entry.annotation, self.module)
        if entry.expression is not None:
            return self.value(entry.expression, scope)
        return entry.value

    def instance_of(
        self, annotation: str, module: Module | Opaque | None, owner: Class | None = None
    ) -> Value:
        """An instance of the class that an annotation names; the class itself for `type[Kind]`."""
        if not isinstance(module, Module):
            return None
        if held := class_held(annotation):
            return annotated(self.sources, module, held, owner)
        found = annotated(self.sources, module, annotation, owner)
        return Instance(found) if found else None

    def read(self, owner: Value, name: str) -> Value:
        """Return the value of `owner.name`."""
        match owner:
            case Module(name=package) if name == "__version__" and self.versions.get(package):
                return self.versions[package]
            case SelfOf(local=local):
                stored = self._stored(local, name, set())
                return stored if stored is not None else self._inherited(local, name)
            case Probe() if name in {"parameters", "args", "keys"}:
                return owner
            case Found() if name == "group":
                return owner
            case Class() if name in {"__dataclass_fields__", "__annotations__"}:
                return fields_of(self.sources, owner)
            case Instance(of=kind) | (Class() as kind):
                answer = self.sources.member_of_class(kind, name)
                if not isinstance(answer, Present):
                    return _definition(answer)
                return self._member(answer.definition, kind, through_instance=isinstance(owner, Instance))
            case Module() | External():
                return _definition(self.sources.member(owner, name))
            case Gone():
                return GONE
        return None

    def class_of(self, local: LocalClass) -> Class | None:
        """Return the `Class` for a class of the examined module, if defined at the module's top level."""
        found = _definition(self.sources.member(self.module, local.node.name))
        return found if isinstance(found, Class) and found.line == local.node.lineno else None

    def _inherited(self, local: LocalClass, name: str) -> Value:
        """Return the value of `self.name` if it is inherited from a class of another package."""
        own = self.class_of(local)
        for part in mro(self.sources, own) if own is not None else ():
            if part is None:
                return None
            if isinstance(part, Class) and name in part.members:
                is_foreign = part.module.partition(".")[0] in self.versions
                return self.read(Instance(part), name) if is_foreign else None
        return None

    def _super(self, scope: Scope) -> Value:
        """Return the value of `super()`: an instance of the next class, if that is known."""
        inner: Scope | None = scope
        while inner is not None:
            for entries in inner.names.values():
                for entry in entries:
                    if (
                        isinstance(entry.value, SelfOf)
                        and (own := self.class_of(entry.value.local)) is not None
                    ):
                        above = list(islice(mro(self.sources, own), 1, 2))
                        return Instance(above[0]) if above and isinstance(above[0], Class) else None
            inner = inner.parent
        return None

    def _member(self, found: Definition, owner: Class, *, through_instance: bool) -> Value:
        home = self.sources.module(found.module) if isinstance(found, (Function, Attribute)) else None
        match found:
            case Function(role="property", returns=returns):
                return self.instance_of(returns, home, owner) if through_instance else None
            case Function():
                return Bound(found, owner, through_instance)
            case Attribute(annotation=annotation) if annotation and through_instance:
                return self.instance_of(annotation, home, owner)
            case Attribute(made_by=made_by) if made_by and through_instance and isinstance(home, Module):
                made = _definition(named(self.sources, home, made_by))
                return Instance(made) if isinstance(made, Class) else None
            case Class():
                return found
        return None

    def _stored(self, local: LocalClass, name: str, seen: set[int]) -> Value:
        """Return the type of `self.name`.

        All assignments in the class and in its bases in this module must agree.
        """
        if id(local) in seen:
            return None
        seen.add(id(local))
        own = (
            self.instance_of(annotation, self.module) if annotation else self.value(expression, scope)
            for expression, annotation, scope in local.stored.get(name, [])
            if annotation or not (isinstance(expression, ast.Constant) and expression.value is None)
        )
        inherited = (self._stored(base, name, seen) for base in local.bases if name in base.stored)
        return _agreed(chain(own, inherited))

    def _call(self, node: ast.Call, scope: Scope, *, awaited: bool) -> Value:
        callee = self.value(node.func, scope)
        match callee:
            case Class():
                return Instance(callee)
            case Bound(function=function, owner=owner):
                return self._returned(function, owner, awaited=awaited)
            case Function(role="function") if callee.module != self.module.name and self.sources.own_name(
                callee.module
            ):
                special = self._version_of(callee.name, node, scope)
                return special if special is not None else self._returned(callee, None, awaited=awaited)
            case Function():
                return self._version_of(callee.name, node, scope)
            case External(dotted=name):
                module = self.module_named(node, scope)
                return (
                    result_of_call(
                        name,
                        [partial(self.value, argument, scope) for argument in node.args],
                        self.sources,
                        self.versions,
                    )
                    if module is None
                    else _definition(self.sources.import_module(module))
                )
            case Probe() | Gone():
                return callee
            case Found(version=version):
                return version
        match node:
            case ast.Call(func=ast.Name(id="__import__"), args=[given, *_]):
                package = self.value(given, scope)
                if not isinstance(package, str):
                    return None
                whole = any(keyword.arg == "fromlist" for keyword in node.keywords) or len(node.args) > 3
                return _definition(
                    self.sources.import_module(package if whole else package.partition(".")[0])
                )
            case ast.Call(func=ast.Name(id="super"), args=[]):
                return self._super(scope)
            case ast.Call(func=ast.Name(id="getattr"), args=[whose, ast.Constant(value=str(name)), *_]):
                return self.read(self.value(whose, scope), name)
        if isinstance(node.func, ast.Name) and node.func.id in _CONTAINERS and len(node.args) == 1:
            inner = self.value(node.args[0], scope)
            return inner if isinstance(inner, Probe) else None
        return None

    def module_named(self, node: ast.Call, scope: Scope) -> str | None:
        """Return the module that a call imports; None for any other call.

        It is imported by `importlib.import_module("package.module")` or `__import__`.
        """
        callee = self.value(node.func, scope)
        by_function = isinstance(callee, External) and callee.dotted == "importlib.import_module"
        if (by_function and len(node.args) == 1) or (_is_built_in(node, scope) and node.args):
            name = self.value(node.args[0], scope)
            return name if isinstance(name, str) and not name.startswith(".") else None
        return None

    def _returned(self, function: Function, owner: Class | None, *, awaited: bool) -> Value:
        if function.is_async and not awaited:
            return None
        return self.instance_of(function.returns, self.sources.module(function.module), owner)

    def _version_of(self, name: str, node: ast.Call, scope: Scope) -> Value:
        """Return the value of `get_version("vllm")`, a helper that verl defines in several modules."""
        if name == "get_version" and len(node.args) == 1:
            return version_of(self.value(node.args[0], scope), self.versions)
        return None

    def _field_names(self, node: ast.SetComp | ast.ListComp | ast.GeneratorExp, scope: Scope) -> Value:
        """Return the value of `{field.name for field in dataclasses.fields(Class)}`."""
        if len(node.generators) != 1 or not dotted(node.elt).endswith(".name"):
            return None
        inner = self.value(node.generators[0].iter, scope)
        return inner if isinstance(inner, Probe) else None


def annotation_text(node: ast.expr | None) -> str:
    """Return the text of an annotation, "" if there is none."""
    return "" if node is None else text_of(node, 400)


def _definition(answer: Answer | None) -> Value:
    match answer:
        case Present(definition=Opaque() | Variable() | Attribute()):
            return None
        case Present(definition=definition):
            return definition
        case Missing():
            return GONE
    return None


def _agreed(values: Iterable[Value]) -> Value:
    """Return the value on which all bindings of a name agree.

    Bindings to names that do not exist here are ignored.
    """
    agreed: Value = None
    for value in values:
        if value is None:
            return None
        if agreed is None or agreed is GONE:
            agreed = value
        elif value is not GONE and value != agreed:
            return None
    return agreed


def _joined(parts: list[Value]) -> str | None:
    """Return the concatenation of strings, None if one of them is unknown."""
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else None


def _is_built_in(node: ast.Call, scope: Scope) -> bool:
    """Return whether a call is Python's built-in `__import__`."""
    return (
        isinstance(node.func, ast.Name) and node.func.id == "__import__" and scope.find("__import__") is None
    )
