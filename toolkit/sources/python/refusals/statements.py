"""Statements: what they bind, where they end, and what they raise."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Sequence

from verl_doctor.toolkit.sources.python.definitions import FunctionNode
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.calls import Calls
from verl_doctor.toolkit.sources.python.refusals.refused import (
    LONGEST,
    LoopLeftError,
    NotFollowedError,
    Refusal,
    RefusedError,
    ReturnedError,
)
from verl_doctor.toolkit.sources.python.refusals.syntax import (
    catching,
    leaves_loop,
    rebound,
    succeeds,
    suppresses,
    words_of,
)
from verl_doctor.toolkit.sources.python.refusals.values import Frame, Made, blur, is_plain, set_by
from verl_doctor.toolkit.sources.python.source import dotted, walk


class Statements(Calls):
    """Follows the statements of a function. Raises RefusedError at a certain `raise` or a false `assert`."""

    _loops: bool
    _left: int

    def _block(self, body: Sequence[ast.stmt], frame: Frame) -> None:
        for node in body:
            self._left -= 1
            if self._left < 0:
                raise NotFollowedError
            self._statement(node, frame)

    def _statement(self, node: ast.stmt, frame: Frame) -> None:
        match node:
            case ast.Return(value=value):
                raise ReturnedError(None if value is None else self._value(value, frame))
            case ast.Raise(exc=exc):
                self._refuse(exc, frame, "", node)
            case ast.Assert(test=test, msg=message):
                self.settings.read.clear()
                known = self._truth(self._value(test, frame))
                if known is False:
                    self._refuse(message, frame, words_of(test), node, "AssertionError")
            case ast.If(test=test):
                self._if(node, test, frame)
            case ast.Assign(targets=targets, value=value):
                before = len(self.settings.read)
                found = self._value(value, frame)
                keys = tuple(self.settings.read[before:])
                for target in targets:
                    self._changes.store(target, found, frame, keys)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._changes.store(target, self._value(value, frame), frame, ())
            case ast.AugAssign(target=target):
                self._changes.store(target, UNCLEAR, frame, ())
            case ast.Expr(value=value):
                self._value(value, frame)
            case ast.FunctionDef():
                frame.names.update(dict.fromkeys(rebound(node), UNCLEAR))
                frame.names[node.name] = (
                    UNCLEAR if node.decorator_list else FunctionNode(node, frame.module, around=frame.names)
                )
            case ast.ImportFrom():
                base = self.definitions.imported(node, frame.module)
                for alias in node.names:
                    frame.names[alias.asname or alias.name] = self.definitions.in_module(base, alias.name)
            case ast.Import():
                for alias in node.names:
                    frame.names[(alias.asname or alias.name).partition(".")[0]] = UNCLEAR
            case ast.For(target=target, iter=iterated, body=body, orelse=[]):
                before = len(self.settings.read)
                values = self._value(iterated, frame)
                made_of = tuple(self.settings.read[before:])
                if isinstance(values, (list, tuple, set, range)) and not leaves_loop(body):
                    for bound in values:
                        self._changes.store(target, bound, frame, made_of)
                        self._block(body, frame)
                elif values is UNCLEAR and self._loops:
                    self._once(node, frame, target)
                else:
                    self._unclear(node, frame)
            case ast.While(test=test, orelse=[]) if self._loops:
                self.settings.read.clear()
                if self._truth(self._value(test, frame)) is False:
                    return
                self._once(node, frame)
            case ast.Break() | ast.Continue():
                raise LoopLeftError
            case ast.With(items=items) if not any(suppresses(item.context_expr) for item in items):
                for item in items:
                    self._value(item.context_expr, frame)
                    if item.optional_vars is not None:
                        self._changes.store(item.optional_vars, UNCLEAR, frame, ())
                self._block(node.body, frame)
            case ast.Try(body=body, handlers=[], finalbody=finalbody):
                self._block(body, frame)
                self._block(finalbody, frame)
            case ast.Try(body=body, finalbody=[]):
                try:
                    self._block(body, frame)
                except RefusedError as refused:
                    handler = catching(node.handlers, refused.refusal.raised)
                    if handler is not None:  # one that raises in its turn
                        self._block(handler.body, frame)
                    raise NotFollowedError from None
                self._handled(node, frame)
            case ast.Pass() | ast.Global() | ast.Nonlocal():
                return
            case _:
                self._unclear(node, frame)

    def _handled(self, node: ast.Try, frame: Frame) -> None:
        """Forget what differs when a handler has run.

        One that ends in `raise` changes nothing of what follows.
        """
        handlers = [part for part in node.handlers if not isinstance(part.body[-1], ast.Raise)]
        if not handlers or all(succeeds(part, frame) for part in node.body):
            self._block(node.orelse, frame)
            return
        parts: list[ast.stmt | ast.ExceptHandler] = [*node.body, *handlers, *node.orelse]
        for part in parts:
            self._unclear(part, frame)

    def _once(self, node: ast.For | ast.While, frame: Frame, target: ast.expr | None = None) -> None:
        """Follow a loop's body once, as every training job runs it.

        What it changes is unknown before and afterwards.
        """
        written = [
            part.id for part in walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        ]
        frame.names.update(dict.fromkeys(written, UNCLEAR))
        if target is not None:
            self._changes.store(target, UNCLEAR, frame, ())
        with contextlib.suppress(LoopLeftError):
            self._block(node.body, frame)
        frame.names.update(dict.fromkeys(written, UNCLEAR))

    def _if(self, node: ast.If, test: ast.expr, frame: Frame) -> None:
        self.settings.read.clear()
        known = self._truth(self._value(test, frame))
        if known is UNCLEAR:
            self._unclear(node, frame)
            return
        taken = node.body if known else node.orelse
        match taken[:1]:
            case [ast.Raise(exc=exc) as raised]:
                self._refuse(exc, frame, words_of(test), raised)
        self.settings.around.append(list(self.settings.read))
        try:
            self._block(taken, frame)
        finally:
            self.settings.around.pop()

    def _unclear(self, node: ast.stmt | ast.ExceptHandler, frame: Frame) -> None:
        """Follow a block that may not run: what it changes is unknown afterwards."""
        leaves = False
        for part in walk(node):
            match part:
                case ast.Return():
                    raise NotFollowedError
                case ast.Break() | ast.Continue() if not isinstance(node, (ast.For, ast.While)):
                    leaves = True
                case (
                    ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name)
                ):
                    frame.names[name] = UNCLEAR
                case ast.alias(name=name, asname=other):
                    frame.names[other or name.partition(".")[0]] = UNCLEAR
                case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                    self._changes.store(part, UNCLEAR, frame, ())
                case ast.Call(func=function, args=arguments):
                    self._changes.call(part, frame)
                    for argument in (
                        function.value if isinstance(function, ast.Attribute) else function,
                        *arguments,
                    ):
                        owner = frame.names.get(dotted(argument).partition(".")[0])
                        if isinstance(owner, Made) and not isinstance(argument, ast.Attribute):
                            blur(owner, set_by(part))
        if leaves:
            raise LoopLeftError

    def _refuse(
        self, message: ast.expr | None, frame: Frame, condition: str, node: ast.stmt, raised: str = ""
    ) -> None:
        keys = self.settings.keys_read()
        text = message
        if isinstance(message, ast.Call) and not raised:
            raised, text = dotted(message.func), next(iter(message.args), None)
        elif not raised:
            raised, text = dotted(message), None
        place = self.definitions.place(frame.module, node.lineno)
        words = self._message_text(text, frame) if text is not None else ""
        around = self.settings.keys_around(keys)
        raise RefusedError(
            Refusal(raised.rpartition(".")[2], words[:LONGEST], place, condition, keys, around)
        )

    def _message_text(self, node: ast.expr, frame: Frame) -> str:
        """Return a message as far as it is known."""
        match node:
            case ast.JoinedStr(values=parts):
                return "".join(self._message_text(part, frame) for part in parts)
            case ast.FormattedValue(value=value):
                found = self._value(value, frame)
                return str(found) if is_plain(found) else "..."
            case ast.Constant(value=value):
                return str(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._message_text(left, frame) + self._message_text(right, frame)
        return "..."
