"""The uses that expressions make of other packages: attributes, calls and names."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from verl_doctor.toolkit.collectors.api.calls import keyword_fit, places_fit
from verl_doctor.toolkit.collectors.api.forwarded import forwarded
from verl_doctor.toolkit.collectors.api.guards import judge, opposite
from verl_doctor.toolkit.collectors.api.library_calls import PROBES
from verl_doctor.toolkit.collectors.api.lost_names import LostNames
from verl_doctor.toolkit.collectors.api.options import parses
from verl_doctor.toolkit.collectors.api.patches import attribute_patched, paths_patched
from verl_doctor.toolkit.collectors.api.recorder import Recorder, note
from verl_doctor.toolkit.collectors.api.scopes import Scopes
from verl_doctor.toolkit.collectors.api.sent import SENDS, called_name, names_sent, worker_has
from verl_doctor.toolkit.collectors.api.signatures import signature_of_call
from verl_doctor.toolkit.collectors.api.spread import Spreads
from verl_doctor.toolkit.collectors.api.use import Context, position
from verl_doctor.toolkit.collectors.api.value import GONE, Bound, Instance, Value, describe
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.answers import External, Present
from verl_doctor.toolkit.sources.python.source import children, dotted, walk
from verl_doctor.toolkit.sources.python.symbols import Class, Function, Module

_DOTTED = re.compile(r"\w+(?:\.\w+)+")


class ExpressionUses:
    """Reads the expressions of one module.

    `senders` are functions that have the workers run a method. `parsed` are the calls that read a command's
    options.
    """

    def __init__(
        self, reader: ValueReader, scopes: Scopes, record: Recorder, senders: frozenset[str]
    ) -> None:
        self.reader, self.scopes, self.record, self.senders = reader, scopes, record, senders
        self.found = record.found
        self.lost = LostNames(reader, record)
        self.spreads = Spreads(reader)
        self.parsed: list[tuple[ast.Call, Context]] = []

    def of_statement(self, node: ast.stmt, context: Context) -> None:
        """Read the expressions of a statement, leaving its nested statements to the caller."""
        for child in children(node):
            if isinstance(node, ast.AnnAssign) and child is node.annotation:
                self._annotation(child, context)
            elif isinstance(child, ast.expr):
                self.expression(child, context)
            elif isinstance(child, ast.withitem):
                self.expression(child.context_expr, context)

    def _annotation(self, node: ast.AST, context: Context) -> None:
        """Read the names in an annotation. Most are never evaluated, so a name may be unbound there."""
        for part in walk(node):
            if isinstance(part, ast.Name):
                self.record.mention(part.id, context)
            elif isinstance(part, ast.Attribute):
                self._attribute(part, context)

    def expression(self, node: ast.AST, context: Context) -> None:
        """Read an expression and those within it."""
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
                self.record.mention(name, context)
                if isinstance(node.ctx, ast.Load):
                    self.lost.if_unbound(node, context)
            case ast.Constant(value=str(text)) if context.unit:
                self._class_named(text, context)
            case ast.Lambda():
                self.expression(
                    node.body, replace(context, handlers=(), scope=self.scopes.of_lambda(node, context.scope))
                )
                return
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                context = replace(context, scope=self.scopes.of_comprehension(node, context.scope))
        for child in children(node):
            self.expression(child, context)

    def _class_named(self, text: str, context: Context) -> None:
        """Record that a function names a class of the examined tree by its path.

        For example, `worker_extension_cls` does so. The class is created.
        """
        sources, top = self.reader.sources, self.reader.module.name.partition(".")[0]
        if text.startswith(f"{top}.") and _DOTTED.fullmatch(text):
            answer = sources.resolve(text)
            if isinstance(answer, Present) and isinstance(answer.definition, Class):
                name = text.rpartition(".")[2]
                self.record.mention(name, context)
                note(self.found.calls, name, context)

    def _if_expression(self, node: ast.IfExp, context: Context) -> None:
        self.expression(node.test, context)
        verdict = judge(node.test, self.reader, context.scope)
        if verdict.holds is not False:
            self.expression(node.body, context if verdict.holds else context.under(node.test, self.reader))
        if verdict.holds is not True:
            other = context if verdict.holds is False else context.under(opposite(node.test), self.reader)
            self.expression(node.orelse, other)

    def _chain(self, node: ast.BoolOp, context: Context) -> None:
        """Read `a and b` or `a or b`.

        In `a and b`, `b` is only reached if `a` holds. In `a or b`, it is reached if `a` does not.
        """
        for value in node.values:
            self.expression(value, context)
            test = value if isinstance(node.op, ast.And) else opposite(value)
            verdict = judge(test, self.reader, context.scope)
            if verdict.holds is False:
                return
            if verdict.holds is None:
                context = context.under(test, self.reader)

    def _attribute(self, node: ast.Attribute, context: Context) -> None:
        self.record.mention(node.attr, context)
        owner = self.reader.value(node.value, context.scope)
        if owner is GONE and isinstance(node.ctx, ast.Load) and not node.attr.startswith("__"):
            self.lost.if_none(node.value, context, "attribute")
        if not self.reader.is_watched(owner):
            return
        if isinstance(node.ctx, ast.Load):
            narrowed = dotted(node.value) if dotted(node.value) in context.narrowed else ""
            self.record.member(owner, node.attr, position(node), "attribute", context, narrowed)
        elif isinstance(node.ctx, ast.Store):
            if isinstance(owner, Instance) and not _is_self(node.value, context):
                self.record.member(owner, node.attr, position(node), "store", context)
            self._puts(owner, node.attr)

    def _puts(self, owner: Value, name: str) -> None:
        """Remember an attribute that verl itself sets: reading it later is not a miss."""
        self.scopes.patched.add(name)
        if isinstance(owner, (Class, Module)) and self.reader.is_watched(owner):
            self.found.patched.add(f"{describe(owner)}.{name}")

    def _call(self, node: ast.Call, context: Context) -> None:
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, named, *default]) if isinstance(
                name := self.reader.value(named, context.scope), str
            ):
                value = self.reader.value(owner, context.scope)
                if self.reader.is_watched(value):
                    guarded = (
                        replace(context, guard=context.guard or "getattr with a default")
                        if default
                        else context
                    )
                    self.record.member(value, name, position(node), "attribute", guarded)
                self.record.mention(name, context)
                return
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=str(name)), *_]):
                self._puts(self.reader.value(owner, context.scope), name)
        if (module := self.reader.module_named(node, context.scope)) is not None:
            self.record.imported(module, "", position(node), context)
        if parses(node):
            self.parsed.append((node, context))
        if called := dotted(node.func).rpartition(".")[2]:
            note(self.found.calls, called, context)
            if called == SENDS and not context.when and not context.guard:
                self.found.sent.setdefault(context.unit, set()).update(name for name, _ in names_sent(node))
        if called_name(node) in self.senders:
            self._sent(node, context)
        self._patches(node, context)
        self.spreads.update(node, context)
        self._fit(node, context)
        if (passed_on := forwarded(node, self.reader, context.scope)) is not None:
            call, unfinished = passed_on
            self._fit(call, context, unfinished=unfinished)

    def _fit(self, node: ast.Call, context: Context, *, unfinished: bool = False) -> None:
        """Check a call of an examined package's function.

        An unfinished call may receive more arguments later.
        """
        callee = self.reader.value(node.func, context.scope)
        if callee is GONE:
            self.lost.if_none(node.func, context, "keyword")
        if isinstance(callee, External) and callee.dotted in PROBES and node.args:
            self.lost.if_none(node.args[0], context, "keyword")
        if not self.reader.is_watched(callee):
            return
        found = signature_of_call(self.reader.sources, callee)
        replaced = isinstance(callee, (Bound, Function)) and describe(callee).rpartition(".")[2]
        reason = (
            f"this module itself sets {replaced} somewhere"
            if replaced in self.scopes.patched
            else "its parameters are not known"
            if found is None
            else ""
        )
        if found is None or reason:
            self.record.use("call", describe(callee), position(node), "unknown", context, reason=reason)
            return
        signature, path = found
        named, all_known = self.spreads.keywords(node, context)
        for inner, given in named:
            self.record.fit(callee, keyword_fit(given, signature), inner, path)
        for fit in places_fit(
            node, [given for _, given in named], signature, all_known=all_known and not unfinished
        ):
            self.record.fit(callee, fit, context, path)

    def _sent(self, node: ast.Call, context: Context) -> None:
        """Record a method that the workers are to run, named by a string."""
        sources = self.reader.sources
        own = sources.tree_of(self.reader.module.name)
        if own is not None and "vllm" in self.reader.versions:
            for name, at in names_sent(node):
                answer = worker_has(sources, own, name)
                self.record.answer("sent", f"Worker.{name}", at, answer, context)

    def _patches(self, node: ast.Call, context: Context) -> None:
        """Check that what `mock.patch` replaces exists."""
        sources = self.reader.sources
        for path, at in paths_patched(node, self.reader, context.scope):
            if (own := sources.own_name(path)) is not None and own.partition(".")[0] in self.reader.versions:
                self.record.answer("patch", own, at, sources.resolve(own), context)
        if (replaced := attribute_patched(node, self.reader, context.scope)) is not None:
            owner = self.reader.value(replaced[0], context.scope)
            if self.reader.is_watched(owner):
                self.record.member(owner, replaced[1], position(node), "patch", context)


def _is_self(node: ast.expr, context: Context) -> bool:
    """Return whether an expression is the instance that a function put in place of a method receives.

    It may store anything there.
    """
    found = context.scope.find(node.id) if isinstance(node, ast.Name) else None
    return found is not None and any(
        entry.parameter and isinstance(entry.value, Instance) for entry in found[1]
    )
