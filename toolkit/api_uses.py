"""The uses that one module makes of another package: what it imports, calls and reads, and under which conditions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from verl_doctor.toolkit.api_calls import Fit, Given, keyword_fit, nearest, places_fit
from verl_doctor.toolkit.api_guards import (
    Handler,
    error_of,
    exits,
    handler_of,
    is_universal,
    judge,
    opposite,
    suppressing,
)
from verl_doctor.toolkit.api_scopes import Scopes
from verl_doctor.toolkit.api_values import (
    Bound,
    Instance,
    Reader,
    Scope,
    Value,
    describe,
    signature_of_call,
)
from verl_doctor.toolkit.classes import mro
from verl_doctor.toolkit.pysource import dotted, text_of
from verl_doctor.toolkit.resolve import Answer, Missing, Present, Sources
from verl_doctor.toolkit.summary import absolute
from verl_doctor.toolkit.symbols import Class, Function, Module

Resolution = Literal["present", "missing", "unknown"]
_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Use:
    """One use. `unit` is the function or method it stands in ("" for the module's own level).

    `kind` is "import", "attribute", "store", "keyword", "positional", "meaning", "required" or, for rules to come,
    "override". `when` holds the conditions around it, `guard` what would catch or avoid a miss.
    """

    kind: str
    name: str
    line: int
    column: int
    resolution: Resolution
    unit: str
    when: tuple[str, ...] = ()
    guard: str = ""
    nearest: str = ""
    reason: str = ""
    read_from: str = ""


@dataclass(frozen=True, slots=True)
class Import:
    """An import of another module of the same tree. `conditional`: it need not happen, or may fail unharmed."""

    module: str
    unit: str
    conditional: bool
    guarded: bool = False


@dataclass(slots=True)
class Uses:
    """All that was read from one module.

    `mentions` are the names that each unit uses at all, `calls` those that it calls, each with the conditions around
    it. `units` maps each function or method to its class, if it has one. `dead` are functions that are mentioned here
    only where the two trees say that the code is not reached, or under a question about vLLM that they leave open.
    """

    module: str
    path: str
    uses: list[Use] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    mentions: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    calls: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Context:
    """What surrounds the statement being read."""

    scope: Scope
    unit: str = ""
    in_class: str = ""
    when: tuple[str, ...] = ()
    guard: str = ""
    handlers: tuple[tuple[Handler, ...], ...] = ()


def read_uses(tree: ast.Module, module: Module, sources: Sources, package: str, version: str) -> Uses:
    """Read one module's uses of `package`. May raise RecursionError on absurdly nested sources."""
    reader = Reader(sources, module, package, version)
    walker = _Walker(reader, Scopes(reader))
    walker.block(tree.body, _Context(walker.scopes.of_module(tree)))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    walker.found.dead = frozenset(unit for unit in walker.found.units if unit in names - walker.live)
    return walker.found


class _Walker:
    def __init__(self, reader: Reader, scopes: Scopes) -> None:
        self.reader = reader
        self.scopes = scopes
        self.found = Uses(reader.module.name, reader.module.path)
        self.live: set[str] = set()
        self.spread: dict[tuple[int, str], list[tuple[Given, _Context]]] = {}

    # --- statements

    def block(self, body: Iterable[ast.stmt], context: _Context) -> None:
        statements = list(body)
        for index, node in enumerate(statements):
            self.statement(node, context)
            if isinstance(node, ast.If) and exits(node.body) and not node.orelse:
                verdict = judge(node.test, self.reader, context.scope)
                if verdict.holds is True:
                    return
                rest = context if verdict.holds is False else self._under(opposite(node.test), context)
                self.block(statements[index + 1 :], rest)
                return

    def statement(self, node: ast.stmt, context: _Context) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, context)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, context)
            case ast.ClassDef():
                self._class(node, context)
            case ast.If():
                self._if(node, context)
            case ast.Try():
                self._try(node, context)
            case ast.With() | ast.AsyncWith():
                guards = tuple(
                    handler
                    for item in node.items
                    if (handler := suppressing(item, self.reader, context.scope))
                )
                self.expressions(node, context)
                self.block(
                    node.body, replace(context, handlers=(*context.handlers, guards)) if guards else context
                )
            case ast.For() | ast.AsyncFor() | ast.While():
                self.expressions(node, context)
                self.block(node.body, context)
                self.block(node.orelse, context)
            case ast.Match():
                self.expressions(node, context)
                for case in node.cases:
                    self.block(case.body, self._noted(context, f"a case of {text_of(node.subject)}"))
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                self._item(target, value, context)
                self.expressions(node, context)
            case _:
                if type(node).__name__ == "TryStar":
                    self._try(node, context)  # type: ignore[arg-type]  # same shape, newer Python
                    return
                self.expressions(node, context)

    def _function(self, node: _FunctionNode, context: _Context) -> None:
        for part in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.expression(part, context)
        unit = context.unit or ".".join(filter(None, (context.in_class, node.name)))
        if not context.unit:
            self.found.units[unit] = context.in_class
        scope = self.scopes.of_function(node, context.scope)
        inner = _Context(scope, unit, "", context.when, context.guard)
        self.block(node.body, inner)

    def _class(self, node: ast.ClassDef, context: _Context) -> None:
        for part in [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]:
            self.expression(part, context)
        self.scopes.enter_class(node, context.scope)
        self.block(node.body, replace(context, in_class=node.name if not context.unit else ""))

    def _if(self, node: ast.If, context: _Context) -> None:
        self.expression(node.test, context)
        verdict = judge(node.test, self.reader, context.scope)
        if verdict.holds is not False:
            self.block(node.body, context if verdict.holds else self._under(node.test, context))
        if verdict.holds is not True:
            self.block(
                node.orelse, context if verdict.holds is False else self._under(opposite(node.test), context)
            )

    def _try(self, node: ast.Try, context: _Context) -> None:
        handlers = tuple(handler_of(part) for part in node.handlers)
        before = len(self.found.uses)
        self.block(node.body, replace(context, handlers=(*context.handlers, handlers)))
        body = self.found.uses[before:]
        taken = False
        for part, handler in zip(node.handlers, handlers, strict=True):
            inner = replace(context, handlers=context.handlers)
            misses = {use.resolution for use in body if handler.takes(_error(use))}
            if "missing" in misses and not taken:
                taken = True
                self.block(part.body, inner)
            elif (
                handler.only_for_imports
                and misses <= {"present"}
                and body
                and not _imports_others(node, self.reader)
            ):
                continue
            else:
                self.block(part.body, self._noted(inner, handler.text))
        if not taken:
            self.block(node.orelse, context)
        self.block(node.finalbody, context)

    def _under(self, test: ast.expr, context: _Context) -> _Context:
        """The context below a condition that the trees do not decide."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for part in test.values:
                context = self._under(part, context)
            return context
        verdict = judge(test, self.reader, context.scope)
        if verdict.holds is True or is_universal(test):
            return context
        if verdict.probe:
            return replace(context, guard=context.guard or text_of(test))
        return self._noted(context, text_of(test))

    def _noted(self, context: _Context, condition: str) -> _Context:
        return replace(context, when=(*context.when, condition))

    # --- expressions

    def expressions(self, node: ast.stmt, context: _Context) -> None:
        """Read the expressions of a statement, leaving the statements it holds to the caller."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child, context)
            elif isinstance(child, ast.withitem):
                self.expression(child.context_expr, context)

    def expression(self, node: ast.AST, context: _Context) -> None:
        match node:
            case ast.Attribute():
                self._attribute(node, context)
            case ast.Call():
                self._call(node, context)
            case ast.IfExp():
                self._if_expression(node, context)
                return
            case ast.BoolOp():
                self._chain(node, context)
                return
            case ast.Name(id=name):
                self._mention(name, context)
            case ast.Lambda():
                self.expression(
                    node.body, replace(context, handlers=(), scope=self.scopes.of_lambda(node, context.scope))
                )
                return
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                context = replace(context, scope=self.scopes.of_comprehension(node, context.scope))
        for child in ast.iter_child_nodes(node):
            self.expression(child, context)

    def _if_expression(self, node: ast.IfExp, context: _Context) -> None:
        self.expression(node.test, context)
        verdict = judge(node.test, self.reader, context.scope)
        if verdict.holds is not False:
            self.expression(node.body, context if verdict.holds else self._under(node.test, context))
        if verdict.holds is not True:
            other = context if verdict.holds is False else self._under(opposite(node.test), context)
            self.expression(node.orelse, other)

    def _chain(self, node: ast.BoolOp, context: _Context) -> None:
        """`a and b`: `b` is only reached where `a` holds; `a or b`: where it does not."""
        for value in node.values:
            self.expression(value, context)
            test = value if isinstance(node.op, ast.And) else opposite(value)
            verdict = judge(test, self.reader, context.scope)
            if verdict.holds is False:
                return
            if verdict.holds is None:
                context = self._under(test, context)

    def _attribute(self, node: ast.Attribute, context: _Context) -> None:
        self._mention(node.attr, context)
        owner = self.reader.value(node.value, context.scope)
        if not self._is_watched(owner):
            return
        if isinstance(node.ctx, ast.Load):
            self._record_member(owner, node.attr, _at(node), "attribute", context)
        elif isinstance(node.ctx, ast.Store):
            if isinstance(owner, Instance):
                self._record_member(owner, node.attr, _at(node), "store", context)
            self.scopes.patched.add(node.attr)

    def _call(self, node: ast.Call, context: _Context) -> None:
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *default]):
                value = self.reader.value(owner, context.scope)
                if self._is_watched(value):
                    guarded = (
                        replace(context, guard=context.guard or "getattr with a default")
                        if default
                        else context
                    )
                    self._record_member(value, name, _at(node), "attribute", guarded)
                self._mention(name, context)
                return
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                self.scopes.patched.add(name)
        if called := dotted(node.func).rpartition(".")[2]:
            _note(self.found.calls, called, context)
        callee = self.reader.value(node.func, context.scope)
        self._remember_update(node, context)
        if not self._is_watched(callee):
            return
        found = signature_of_call(self.reader.sources, callee)
        if found is None:
            self._record(
                "call", describe(callee), _at(node), "unknown", context, reason="its parameters are not known"
            )
            return
        signature, path = found
        named, all_known = self._keywords(node, context)
        for inner, given in named:
            self._record_fit(callee, keyword_fit(given, signature), inner, path)
        for fit in places_fit(node, [given for _, given in named], signature, all_known=all_known):
            self._record_fit(callee, fit, context, path)

    def _record_fit(self, callee: Value, fit: Fit, context: _Context, path: str) -> None:
        self._record(
            fit.kind,
            f"{describe(callee)}({fit.name})",
            fit.at,
            "present" if fit.fits else "missing",
            context,
            nearest=fit.nearest,
            read_from=path,
        )

    # --- dicts that are spread into calls

    def _keywords(self, node: ast.Call, context: _Context) -> tuple[list[tuple[_Context, Given]], bool]:
        """The keywords of a call, each with the context in which it is given; and whether these are all."""
        found: list[tuple[_Context, Given]] = []
        all_known = True
        for keyword in node.keywords:
            if keyword.arg is not None:
                found.append((context, Given(keyword.arg, _at(keyword))))
            else:
                spread = list(self._spread(keyword.value, context))
                all_known = False
                found += spread
        return found, all_known

    def _spread(self, node: ast.expr, context: _Context) -> Iterator[tuple[_Context, Given]]:
        match node:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        yield from self._spread(value, context)
                    elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield context, Given(key.value, _at(key))
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                for keyword in keywords:
                    if keyword.arg is None:
                        yield from self._spread(keyword.value, context)
                    else:
                        yield context, Given(keyword.arg, _at(keyword))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                verdict = judge(test, self.reader, context.scope)
                if verdict.holds is not False:
                    yield from self._spread(body, context if verdict.holds else self._under(test, context))
                if verdict.holds is not True:
                    other = context if verdict.holds is False else self._under(opposite(test), context)
                    yield from self._spread(orelse, other)
            case ast.Name(id=name):
                home = context.scope.find(name)
                if home is None:
                    return
                entries = home[1]
                if len(entries) == 1 and (made := entries[0].expression) is not None and made is not node:
                    yield from self._spread(made, context) if not isinstance(made, ast.Name) else ()
                    for given, inner in self.spread.get((id(home[0]), name), []):
                        yield inner, given

    def _item(self, target: ast.Subscript, value: ast.expr, context: _Context) -> None:
        """`kwargs["name"] = value` adds a keyword to what is later spread."""
        if (
            isinstance(target.value, ast.Name)
            and isinstance(target.slice, ast.Constant)
            and isinstance(target.slice.value, str)
        ):
            self._add_spread(target.value.id, Given(target.slice.value, _at(target.slice)), context)

    def _remember_update(self, node: ast.Call, context: _Context) -> None:
        """`kwargs.update(name=value)` and `kwargs.update({"name": value})` do the same."""
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "update"
            and isinstance(node.func.value, ast.Name)
        ):
            for part in [*node.args, ast.Call(ast.Name("dict"), [], node.keywords)]:
                for inner, given in self._spread(part, context):
                    self._add_spread(node.func.value.id, given, inner)

    def _add_spread(self, name: str, given: Given, context: _Context) -> None:
        home = context.scope.find(name)
        if home is not None:
            self.spread.setdefault((id(home[0]), name), []).append((given, context))

    # --- imports

    def _import(self, node: ast.Import | ast.ImportFrom, context: _Context) -> None:
        sources, package = self.reader.sources, self.scopes.package
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._imported(alias.name, "", sources.import_module(alias.name), _at(alias), context)
            return
        source = absolute(node, package)
        for alias in node.names:
            if alias.name == "*":
                self._imported(source, "", sources.import_module(source), _at(alias), context)
            else:
                self._imported(
                    source, alias.name, sources.import_name(source, alias.name), _at(alias), context
                )

    def _imported(
        self, source: str, name: str, answer: Answer, at: tuple[int, int], context: _Context
    ) -> None:
        own = self.reader.sources.own_name(source)
        if own is None:
            return
        if own.partition(".")[0] != self.reader.package:
            self._own_import(own, name, context)
            return
        reason = "" if isinstance(answer, Present) else answer.reason
        read_from = answer.read_from if isinstance(answer, Missing) else ""
        resolution = _resolution(answer)
        guard = self._caught("import", answer, context)
        self._record(
            "import", f"{own}:{name}" if name else own, at, resolution, context, guard, "", reason, read_from
        )

    def _own_import(self, module: str, name: str, context: _Context) -> None:
        conditional = bool(context.when or context.guard or any(context.handlers))
        file = self.reader.sources.file_of(f"{module}.{name}") if name else None
        target = f"{module}.{name}" if file is not None and file.kind in {"module", "package"} else module
        self.found.imports.append(Import(target, context.unit, conditional, bool(context.guard)))

    # --- recording

    def _is_watched(self, value: Value) -> bool:
        """Whether the value belongs to the examined package."""
        match value:
            case Instance(of=kind) | Bound(owner=kind):
                return kind.module.partition(".")[0] == self.reader.package
            case Class(module=module) | Function(module=module) | Module(name=module):
                return module.partition(".")[0] == self.reader.package
        return False

    def _record_member(
        self, owner: Value, name: str, at: tuple[int, int], kind: str, context: _Context
    ) -> None:
        sources = self.reader.sources
        if isinstance(owner, Module):
            answer = sources.member(owner, name)
        elif isinstance(owner, (Instance, Class)):
            answer = sources.member_of_class(owner.of if isinstance(owner, Instance) else owner, name)
        else:
            return
        resolution = _resolution(answer)
        reason = "" if isinstance(answer, Present) else answer.reason
        if resolution == "missing" and name in self.scopes.patched:
            resolution, reason = "unknown", f"this module itself sets {name} somewhere"
        read_from = answer.read_from if isinstance(answer, Missing) else ""
        nearest = self._nearest(owner, name) if resolution == "missing" else ""
        guard = self._caught(kind, answer, context)
        self._record(
            kind, f"{describe(owner)}.{name}", at, resolution, context, guard, nearest, reason, read_from
        )

    def _nearest(self, owner: Value, name: str) -> str:
        """The member of a class whose name is most like the missing one."""
        kind = owner.of if isinstance(owner, Instance) else owner
        if not isinstance(kind, Class):
            return ""
        return nearest(
            name,
            [
                member
                for part in mro(self.reader.sources, kind)
                if isinstance(part, Class)
                for member in part.members
            ],
        )

    def _record(
        self,
        kind: str,
        name: str,
        at: tuple[int, int],
        resolution: Resolution,
        context: _Context,
        guard: str = "",
        nearest: str = "",
        reason: str = "",
        read_from: str = "",
    ) -> None:
        guard = guard or self._caught(kind, None, context)
        self.found.uses.append(
            Use(kind, name, *at, resolution, context.unit, context.when, guard, nearest, reason, read_from)
        )

    def _caught(self, kind: str, answer: object, context: _Context) -> str:
        """What would catch a miss of this kind here, in words; "" when nothing would."""
        if context.guard:
            return context.guard
        error = error_of(kind, answer)
        for handlers in reversed(context.handlers):
            for handler in handlers:
                if handler.takes(error):
                    if handler.raises:
                        break
                    return handler.text
        return ""

    def _mention(self, name: str, context: _Context) -> None:
        if not context.guard:
            self.live.add(name)
        _note(self.found.mentions, name, context)


def _at(node: ast.expr | ast.keyword | ast.alias) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _note(names: dict[str, dict[str, tuple[str, ...]]], name: str, context: _Context) -> None:
    """Remember the mention of a name that stands under the fewest conditions."""
    known = names.setdefault(context.unit, {})
    when = (*context.when, context.guard) if context.guard else context.when
    if name not in known or len(when) < len(known[name]):
        known[name] = when


def _resolution(answer: Answer) -> Resolution:
    return (
        "present" if isinstance(answer, Present) else "missing" if isinstance(answer, Missing) else "unknown"
    )


def _error(use: Use) -> str:
    if use.kind == "import":
        return "ModuleNotFoundError" if use.reason.startswith("there is no module") else "ImportError"
    return error_of(use.kind, None)


def _imports_others(node: ast.Try, reader: Reader) -> bool:
    """Whether the body imports packages that are not read here, so that it may fail for a reason of its own."""
    for part in node.body:
        for inner in ast.walk(part):
            names = (
                [alias.name for alias in inner.names]
                if isinstance(inner, ast.Import)
                else [inner.module or ""]
                if isinstance(inner, ast.ImportFrom) and not inner.level
                else []
            )
            if any(
                isinstance(reader.sources.import_module(name), Present)
                and reader.sources.own_name(name) is None
                for name in names
            ):
                return True
    return False
