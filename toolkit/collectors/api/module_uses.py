"""The uses that a module makes of other packages, statement by statement, and their conditions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace

from verl_doctor.toolkit.collectors.api.annotations import annotations_of, are_evaluated
from verl_doctor.toolkit.collectors.api.decisions.conditions import Decisions
from verl_doctor.toolkit.collectors.api.expression_uses import ExpressionUses
from verl_doctor.toolkit.collectors.api.guards import (
    error_of,
    exits,
    handler_of,
    is_none_test,
    judge,
    opposite,
    suppressing,
    taken,
)
from verl_doctor.toolkit.collectors.api.helpers import Helpers
from verl_doctor.toolkit.collectors.api.options import COMMANDS, nearest_option, options_given
from verl_doctor.toolkit.collectors.api.overrides import Extension
from verl_doctor.toolkit.collectors.api.patches import functions_put
from verl_doctor.toolkit.collectors.api.recorder import Recorder
from verl_doctor.toolkit.collectors.api.scopes import Scopes
from verl_doctor.toolkit.collectors.api.sent import senders
from verl_doctor.toolkit.collectors.api.surroundings import NOT_LOOKED_AT, Surroundings
from verl_doctor.toolkit.collectors.api.use import Context, Use, Uses, position
from verl_doctor.toolkit.collectors.api.value import GONE, Scope
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.answers import Present
from verl_doctor.toolkit.sources.python.callers import Callers
from verl_doctor.toolkit.sources.python.classes import has_enum_members
from verl_doctor.toolkit.sources.python.options import parser_options
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import dotted, statements, text_of, walk
from verl_doctor.toolkit.sources.python.summary import absolute
from verl_doctor.toolkit.sources.python.symbols import Class, Module

_MANY = 3
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def read_uses(
    tree: ast.Module,
    module: Module,
    sources: Sources,
    versions: Mapping[str, str],
    around: Surroundings = NOT_LOOKED_AT,
) -> Uses:
    """Read one module's uses of the packages in `versions`.

    May raise RecursionError on absurdly nested sources.
    """
    reader = ValueReader(sources, module, versions, around)
    nodes = list(walk(tree))
    scopes = Scopes(reader)
    reader.elsewhere = scopes.constant
    helpers, flags = Helpers(reader, tree), Decisions(reader)
    reader.flag, reader.return_value = helpers.flag, helpers.return_value
    reader.by_flags, reader.is_none = flags.holds, flags.is_none
    if around.settings is not None:
        reader.by_settings = Decisions(reader, around.settings).holds
    walker = _Walker(reader, scopes, senders(nodes))
    walker.evaluates_annotations = are_evaluated(tree, around.python)
    top = walker.scopes.of_module(tree, nodes)
    reader.is_unbound = lambda name, scope: (
        _is_of(top, name, scope) and flags.is_unbound(tree.body, name, top)
    )
    walker.block(tree.body, Context(top))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    walker.found.off = frozenset(reader.off)
    walker.found.dead = frozenset(unit for unit in walker.found.units if unit in names - walker.record.live)
    return walker.found


class _Walker:
    """Reads the statements of one module; `expressions` reads what is in them.

    `put` are the functions that the current function puts in place of others, `callers` what calls the
    methods of the examined packages.
    """

    def __init__(self, reader: ValueReader, scopes: Scopes, sending: frozenset[str]) -> None:
        self.reader = reader
        self.scopes = scopes
        self.record = Recorder(reader, scopes.patched)
        self.found = self.record.found
        self.expressions = ExpressionUses(reader, scopes, self.record, sending)
        self.lost, self.spreads = self.expressions.lost, self.expressions.spreads
        self.callers: dict[str, Callers] = {}
        self.put: dict[str, ast.expr] = {}
        self.evaluates_annotations = False

    def block(self, body: Iterable[ast.stmt], context: Context) -> None:
        """Read statements that run one after the other."""
        every = list(body)
        for index, node in enumerate(every):
            self.statement(node, context)
            if isinstance(node, ast.If) and exits(node.body) and not node.orelse:
                verdict = judge(node.test, self.reader, context.scope)
                if verdict.holds is True:
                    return
                goes_on = verdict.holds is False or self._refused(node, context) or _is_rare(node.test)
                rest = context if goes_on else context.under(opposite(node.test), self.reader)
                self.block(every[index + 1 :], rest)
                return

    def _refused(self, node: ast.If, context: Context) -> bool:
        """Return whether an `if` only raises.

        If so, the code after it runs in every job that continues, unless its settings enter the `if`.
        """
        raises = isinstance(node.body[-1], ast.Raise)
        return (
            raises
            and taken(node.test, self.reader, context.scope) is not True
            and not judge(node.test, self.reader, context.scope).probe
        )

    def statement(self, node: ast.stmt, context: Context) -> None:
        """Read one statement, with those nested in it."""
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
                self.expressions.of_statement(node, context)
                self.block(
                    node.body, replace(context, handlers=(*context.handlers, guards)) if guards else context
                )
            case ast.For() | ast.AsyncFor() | ast.While():
                self.expressions.of_statement(node, context)
                inner = context.under(node.test, self.reader) if isinstance(node, ast.While) else context
                self.block(node.body, inner)
                self.block(node.orelse, context)
            case ast.Match():
                self.expressions.of_statement(node, context)
                for case in node.cases:
                    self.block(case.body, context.noted(f"a case of {text_of(node.subject)}"))
            case ast.Delete(targets=targets):
                for target in targets:
                    self.spreads.removed(target, context)
                self.expressions.of_statement(node, context)
            case ast.Raise():
                self._raise(node, context)
                self.expressions.of_statement(node, context)
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                self.spreads.item(target, value, context)
                self.expressions.of_statement(node, context)
            case _:
                if type(node).__name__ == "TryStar":
                    self._try(node, context)  # type: ignore[arg-type]  # same shape, newer Python
                    return
                self.expressions.of_statement(node, context)

    def _function(self, node: _FunctionNode, context: Context) -> None:
        for part in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.expressions.expression(part, context)
        if self.evaluates_annotations:
            for annotation in annotations_of(node):
                for name in walk(annotation):
                    if isinstance(name, ast.Name):
                        self.lost.if_unbound(name, context)
        unit = context.unit or ".".join(filter(None, (context.in_class, node.name)))
        if not context.unit:
            self.found.units[unit] = context.in_class
        replaced = self.put.get(node.name) if context.unit else None
        scope = self.scopes.of_function(node, context.scope, replaced)
        if not context.unit:
            self.put = dict(functions_put(node))
        elif replaced is not None:
            context = self._put(replaced, context)
        inner = Context(scope, unit, "", context.when, context.guard)
        before = len(self.expressions.parsed)
        self.block(node.body, inner)
        for call, place in self.expressions.parsed[before:]:
            self._options(node, call, place)

    def _put(self, place: ast.expr, context: Context) -> Context:
        """Return the context in a function that only replaces another: it is run when that is called."""
        held = self.reader.by_settings(place, context.scope)
        if held:
            return context
        condition = f"{text_of(place)}() is called"
        if held is False:
            self.reader.off.add((context.unit, condition))
        return context.noted(condition)

    def _options(self, node: _FunctionNode, call: ast.Call, context: Context) -> None:
        """Check the command-line options that the function assembles against those the command accepts."""
        owner = (
            self.reader.value(call.func.value, context.scope)
            if isinstance(call.func, ast.Attribute)
            else None
        )
        if owner is not GONE and not self.reader.is_watched(owner):
            return
        command = next((COMMANDS[package] for package in self.reader.versions if package in COMMANDS), "")
        tree = self.reader.sources.tree_of(command)
        accepted = parser_options(tree, command) if tree is not None else None
        for place, given in options_given(node, call, context, self.reader, self.spreads):
            fits = accepted is not None and accepted.takes(given.name)
            known = fits or (accepted is not None and accepted.complete)
            self.record.use(
                "option",
                given.name.replace("_", "-"),
                given.at,
                "present" if fits else "missing" if known else "unknown",
                place,
                nearest=nearest_option(given.name, accepted.names)
                if accepted is not None and not fits
                else "",
                reason="" if known else f"the options of {command} cannot be read",
                read_from=accepted.path if accepted is not None else "",
            )

    def _class(self, node: ast.ClassDef, context: Context) -> None:
        for part in [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]:
            self.expressions.expression(part, context)
        for base in node.bases:
            self.lost.if_none(base, context, "keyword")
            self._if_final(base, context)
        self.scopes.enter_class(node, context.scope)
        self.block(node.body, replace(context, in_class=node.name if not context.unit else ""))
        if not context.unit and not context.in_class and node.bases:
            self._extension(node, context)

    def _extension(self, node: ast.ClassDef, context: Context) -> None:
        """Check the methods of an examined package's class that a class overrides."""
        extension = Extension(node, self.reader, context.scope, self.callers)
        if extension.bases:
            self.found.units.setdefault(f"{node.name}.__init__", node.name)
        for verdict in extension.judged():
            place = replace(
                context, unit=f"{node.name}.{verdict.method}", when=(*context.when, *verdict.when)
            )
            self.record.use(
                verdict.kind,
                verdict.name,
                verdict.at,
                verdict.resolution,
                place,
                nearest=verdict.wanted,
                reason=verdict.reason,
                read_from=verdict.read_from,
            )

    def _if(self, node: ast.If, context: Context) -> None:
        self.expressions.expression(node.test, context)
        verdict = judge(node.test, self.reader, context.scope)
        if self.reader.around.called and verdict.holds is False and is_none_test(node.test):
            self._unnamed(node, context)
        other = opposite(node.test)
        if verdict.holds is not False:
            inner = (
                context.settled(node.test, verdict)
                if verdict.holds
                else context.under(node.test, self.reader)
            )
            self.block(node.body, inner)
        if verdict.holds is not True:
            inner = (
                context.under(other, self.reader)
                if verdict.holds is None
                else context.settled(other, verdict)
            )
            self.block(node.orelse, inner)

    def _unnamed(self, node: ast.If, context: Context) -> None:
        """Record what verl raises where pip has no package of the name that it queries."""
        for part in (part for inner in node.body for part in statements(inner)):
            if isinstance(part, ast.Raise):
                at = (part.lineno, part.col_offset)
                self.record.use("distribution", self.reader.around.called, at, "missing", context)

    def _raise(self, node: ast.Raise, context: Context) -> None:
        """Record what verl raises below a test of the release: it refuses this release."""
        if not context.ruled_out or node.exc is None:
            return
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        guard = context.caught("refusal", dotted(raised).rpartition(".")[2])
        argument = next(iter(node.exc.args), None) if isinstance(node.exc, ast.Call) else None
        words = self.reader.words(argument, context.scope) if argument is not None else ""
        at = (node.lineno, node.col_offset)
        self.record.use(
            "refusal", words or dotted(raised), at, "missing", context, guard, reason=context.ruled_out
        )

    def _try(self, node: ast.Try, context: Context) -> None:
        handlers = tuple(handler_of(part, context.scope) for part in node.handlers)
        before = len(self.found.uses)
        self.block(node.body, replace(context, handlers=(*context.handlers, handlers)))
        body = self.found.uses[before:]
        is_caught = False
        for part, handler in zip(node.handlers, handlers, strict=True):
            inner = replace(context, ruled_out="")
            misses = {use.resolution for use in body if handler.takes(_error(use))}
            if "missing" in misses and not is_caught:
                is_caught = True
                self.block(part.body, inner)
            elif (
                handler.only_for_imports
                and misses <= {"present"}
                and body
                and not _imports_others(node, self.reader)
            ):
                continue
            else:
                self.block(part.body, inner.noted(handler.text))
        if not is_caught:
            self.block(node.orelse, context)
        self.block(node.finalbody, context)

    def _import(self, node: ast.Import | ast.ImportFrom, context: Context) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.record.imported(alias.name, "", position(alias), context)
            return
        source = absolute(node, self.reader.module.package)
        for alias in node.names:
            self.record.imported(source, "" if alias.name == "*" else alias.name, position(alias), context)

    def _if_final(self, node: ast.expr, context: Context) -> None:
        """Record that a class extends an examined package's enum that has members, which Python refuses."""
        kind = self.reader.value(node, context.scope)
        if (
            isinstance(kind, Class)
            and self.reader.is_watched(kind)
            and has_enum_members(self.reader.sources, kind)
        ):
            reason, file = (
                f"{kind.name} is an enumeration with members",
                self.reader.sources.file_of(kind.module),
            )
            self.record.use(
                "final",
                kind.dotted,
                position(node),
                "missing",
                context,
                reason=reason,
                read_from=str(file.path) if file is not None else "",
            )


def _is_of(top: Scope, name: str, scope: Scope) -> bool:
    """Return whether a name that is read in a scope is the module's own."""
    found = scope.find(name)
    return found is not None and found[0] is top


def _is_rare(test: ast.expr) -> bool:
    """Return whether a condition for leaving early is so strict that the code after it is the usual path."""
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and len(test.values) >= _MANY


def _error(use: Use) -> str:
    if use.kind == "import":
        return "ModuleNotFoundError" if use.lacks == "module" else "ImportError"
    return error_of(use.kind, None)


def _imports_others(node: ast.Try, reader: ValueReader) -> bool:
    """Return whether the body imports unexamined packages, so that it may fail for an unrelated reason."""
    for part in node.body:
        for inner in walk(part):
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
