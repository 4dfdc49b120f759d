"""Follows functions of several source trees, and raises at the first certain `raise`, false `assert` or impossible operation.

Functions are followed with the values of a configuration. Anything not understood is `UNCLEAR`. A branch under an unclear
condition is not followed: its assignments become unclear, and its exceptions do not count.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.definitions import (
    Choices,
    ClassNode,
    Definitions,
    FunctionNode,
    Modules,
)
from verl_doctor.toolkit.sources.python.evaluate import ARITHMETIC, COMPARE, UNCLEAR, as_set
from verl_doctor.toolkit.sources.python.refusals import known_calls
from verl_doctor.toolkit.sources.python.refusals.changes import Changes
from verl_doctor.toolkit.sources.python.refusals.refused import (
    LoopLeftError,
    NotFollowedError,
    Refusal,
    RefusedError,
    ReturnedError,
)
from verl_doctor.toolkit.sources.python.refusals.settings import REQUIRED, Settings
from verl_doctor.toolkit.sources.python.refusals.syntax import (
    decorator_of,
    leaves_loop,
    rebound,
    succeeds,
    suppresses,
    words_of,
    yields,
)
from verl_doctor.toolkit.sources.python.refusals.values import (
    NOT_ITERABLE,
    PLAIN,
    SETTERS,
    Frame,
    Made,
    Section,
    blur,
    dtype,
    is_instance,
    is_plain,
    set_by,
)
from verl_doctor.toolkit.sources.python.source import SourceTree, dotted, walk

_STEPS = 20_000
_DEEPEST = 12
_TEXT = 300  # characters of a message
_TRANSPARENT = frozenset({"auto_await", "model_validator"})
"""Decorators below which a method does what its body says."""


class Follower:
    """Follows functions of several source trees. `look` returns the configuration's value for a key, `MISSING` or `UNDETERMINED`.

    `loops`: the body of a loop over unknown values is followed once. `variable` returns the value of an environment variable,
    None where it is not set, `UNCLEAR` where unknown. `modules` are those that were already read. `calls` are the known results of
    functions that are not followed, such as `torch.distributed.get_world_size`. `removed` are keys that the job takes out of the
    configuration: reading one as an attribute raises. The first tree is the program's own, the others are libraries.
    """

    def __init__(
        self,
        trees: Iterable[SourceTree],
        look: Callable[[str], Any],
        *,
        loops: bool = False,
        variable: Callable[[str], Any] = lambda _: UNCLEAR,
        modules: Modules | None = None,
        calls: Mapping[str, Any] | None = None,
        removed: frozenset[str] = frozenset(),
    ) -> None:
        self._loops = loops
        self._variable = variable
        self._calls = {} if calls is None else calls
        self.settings = Settings(look, removed)
        self._changes = Changes(self.settings)
        self.definitions = Definitions(trees, modules, self.expression)
        self._left = _STEPS
        self._depth = 0

    # What a configuration holds

    def made(self, section: str) -> Any:
        """Return the object that Hydra makes from a section with a `_target_`, inner ones first. Raises RefusedError."""
        content, target = self.settings.look(section), self.settings.look(f"{section}._target_")
        if not isinstance(content, Mapping) or not isinstance(target, str):
            for name, value in content.items() if isinstance(content, Mapping) else ():
                if isinstance(value, Mapping):
                    self.made(f"{section}.{name}")
            return Section(section)
        owner = self.definitions.named(target)
        fields: dict[str, Any] = {}
        for name in content:
            if name != "_target_":
                key = f"{section}.{name}"
                value = self.settings.value_at(key)
                fields[name] = self.made(key) if isinstance(value, Section) else value
        if not isinstance(owner, ClassNode):
            return UNCLEAR
        return self.instance(owner, fields, {name: f"{section}.{name}" for name in fields})

    def instance(self, owner: ClassNode, given: Mapping[str, Any], keys: Mapping[str, str]) -> Made:
        """Return an object of a dataclass with these fields, after its `__post_init__`. Raises RefusedError."""
        made = Made(owner, {**self._defaults(owner), **given}, dict(keys))
        method = self.definitions.method(owner, "__post_init__")
        if method is not None:
            self._tried(method, made)
        return made

    def _defaults(self, owner: ClassNode) -> dict[str, Any]:
        """Return the default values of a dataclass's fields."""
        fields: dict[str, Any] = {}
        for base in reversed(list(self.definitions.bases(owner))):
            for part in base.node.body:
                match part:
                    case ast.AnnAssign(target=ast.Name(id=name), value=value):
                        known = isinstance(value, (ast.Constant, ast.Tuple, ast.UnaryOp))
                        frame = Frame(base.module, {})
                        fields[name] = self._value(value, frame) if known and value else UNCLEAR
        return fields

    def constructed(
        self,
        owner: ClassNode,
        named: Mapping[str, Any],
        keys: Mapping[str | int, tuple[str, ...]] | None = None,
    ) -> None:
        """Follow the `__init__` of a class with these arguments, made from these keys; other arguments are unknown.

        Raises RefusedError, also for an argument that it does not accept.
        """
        method = self.definitions.method(owner, "__init__")
        if method is None:
            return
        spec = method.node.args
        taken = {argument.arg for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
        for name in named if keys is not None and spec.kwarg is None else ():
            if name not in taken:
                self.settings.read[:] = (keys or {}).get(name, ())
                words = f"{owner.node.name}.__init__() got an unexpected keyword argument '{name}'"
                self._impossible("TypeError", words, spec, Frame(method.module, {}), method.node.lineno)
        self.call(FunctionNode(method.node, method.module, Made(owner, {}), method.owner), (), named, keys)

    def method_of(self, made: Made, name: str, named: Mapping[str, Any]) -> None:
        """Follow a method of an object. Raises RefusedError."""
        method = self.definitions.method(made.owner, name)
        if method is not None and {decorator_of(mark) for mark in method.node.decorator_list} <= _TRANSPARENT:
            awaited = isinstance(method.node, ast.AsyncFunctionDef)
            function = FunctionNode(method.node, method.module, made, method.owner)
            self.call(function, (), named, awaited=awaited)

    def checked(
        self,
        owner: ClassNode,
        given: Mapping[str, Any],
        keys: Mapping[str, str],
        method: str,
        named: Mapping[str, Any] | None = None,
    ) -> None:
        """Follow a method, with its arguments in `named`, of an object with these fields and its class's defaults. Raises RefusedError."""
        self.method_of(Made(owner, {**self._defaults(owner), **given}, dict(keys)), method, named or {})

    def _tried(self, method: FunctionNode, made: Made) -> None:
        try:
            self.call(FunctionNode(method.node, method.module, made, method.owner), (), {})
        except NotFollowedError:
            blur(made, self._stored(made.owner))

    def _stored(self, owner: ClassNode) -> frozenset[str] | None:
        """Return the names of all attributes that methods of a class may change; None if they cannot be determined."""
        names: set[str] = set()
        for base in self.definitions.bases(owner):
            for part in walk(base.node):
                match part:
                    case ast.Attribute(attr=name, ctx=ast.Store()):
                        names.add(name)
                    case ast.Call(func=function) if dotted(function) in SETTERS:
                        name_set = set_by(part)
                        if name_set is None:
                            return None
                        names |= name_set
        return frozenset(names)

    # Names

    def _attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, Section):
            found = self.settings.value_in(value, name)
            return UNCLEAR if found is MISSING else found
        if isinstance(value, Made):
            if name in value.fields:
                return self.settings.field_of(value, name)
            method = self.definitions.method(value.owner, name)
            if method is None:
                return UNCLEAR
            marks = {dotted(mark) for mark in method.node.decorator_list}
            if marks == {"staticmethod"}:
                return FunctionNode(method.node, method.module, owner=method.owner)
            return UNCLEAR if marks else FunctionNode(method.node, method.module, value, method.owner)
        return self.definitions.attribute(value, name)

    # Functions

    def call(
        self,
        function: FunctionNode,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        keys: Mapping[str | int, tuple[str, ...]] | None = None,
        *,
        awaited: bool = False,
    ) -> Any:
        """Return a function's result, given the keys of its arguments.

        Raises RefusedError if it raises for certain, NotFollowedError where that cannot be determined.
        """
        if self._depth > _DEEPEST or isinstance(function.node, ast.AsyncFunctionDef) is not awaited:
            raise NotFollowedError
        if yields(function.node):
            raise NotFollowedError
        given = [function.bound, *arguments] if function.bound is not None else list(arguments)
        spec = function.node.args
        positional = [*spec.posonlyargs, *spec.args]
        names: dict[str, Any] = dict(function.around)
        names.update({argument.arg: UNCLEAR for argument in (*positional, *spec.kwonlyargs)})
        frame = Frame(function.module, names, function.owner, function.bound)
        for argument, default in zip(reversed(positional), reversed(spec.defaults), strict=False):
            names[argument.arg] = self._value(default, frame)
        for argument, kwdefault in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if kwdefault is not None:
                names[argument.arg] = self._value(kwdefault, frame)
        names.update(zip((argument.arg for argument in positional), given, strict=False))
        skipped = len(given) - len(arguments)
        for place, made_of in (keys or {}).items():
            if isinstance(place, str):
                frame.keys[place] = made_of
            elif place + skipped < len(positional):
                frame.keys[positional[place + skipped].arg] = made_of
        names.update({name: value for name, value in named.items() if name in names})
        for extra in (spec.vararg, spec.kwarg):
            if extra is not None:
                names[extra.arg] = UNCLEAR
        if isinstance(function.around, dict):
            function.around.update(dict.fromkeys(rebound(function.node), UNCLEAR))
        names.update(dict.fromkeys(rebound(function.node), UNCLEAR))
        self._depth += 1
        try:
            self._block(function.node.body, frame)
        except ReturnedError as end:
            return end.value
        except LoopLeftError:
            raise NotFollowedError from None
        finally:
            self._depth -= 1
        return None

    def called_as(self, node: ast.Call, module: str, names: Mapping[str, Any]) -> Any:
        """Follow a call somewhere in a module, with these names for its surroundings."""
        return self._call(node, Frame(module, dict(names)))

    def expression(self, node: ast.expr, module: str) -> Any:
        """Return the value of an expression in a module. Raises RefusedError."""
        return self._value(node, Frame(module, {}))

    # Statements

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
                except RefusedError:
                    raise NotFollowedError from None
                self._handled(node, frame)
            case ast.Pass() | ast.Global() | ast.Nonlocal():
                return
            case _:
                self._unclear(node, frame)

    def _handled(self, node: ast.Try, frame: Frame) -> None:
        """Forget what differs when a handler has run. One that ends in `raise` changes nothing of what follows."""
        handlers = [part for part in node.handlers if not isinstance(part.body[-1], ast.Raise)]
        if not handlers or all(succeeds(part, frame) for part in node.body):
            self._block(node.orelse, frame)
            return
        parts: list[ast.stmt | ast.ExceptHandler] = [*node.body, *handlers, *node.orelse]
        for part in parts:
            self._unclear(part, frame)

    def _once(self, node: ast.For | ast.While, frame: Frame, target: ast.expr | None = None) -> None:
        """Follow a loop's body once, as every training job runs it; what it changes is unknown before and afterwards."""
        written = [part.id for part in walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]  # fmt: skip
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

    # Expressions

    def _truth(self, value: Any) -> Any:
        if value is UNCLEAR or value is MISSING:
            return UNCLEAR
        if isinstance(value, Section):
            empty = self.settings.is_empty(value)
            return UNCLEAR if empty is UNCLEAR else not empty
        return bool(value) if isinstance(value, (*PLAIN, range)) else True

    def _value(self, node: ast.expr, frame: Frame) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name in frame.names:
                    self.settings.read.extend(frame.keys.get(name, ()))
                    return frame.names[name]
                return self.definitions.in_module(frame.module, name)
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if number := dtype(name):
                return number
            case ast.Attribute(value=inner, attr=name):
                owner = self._value(inner, frame)
                if isinstance(owner, Section) and self.settings.is_removed(key := owner.child(name)):
                    self.settings.read[:] = [key]
                    self._impossible("ConfigAttributeError", f"Key '{name}' is not in struct", node, frame)
                if isinstance(owner, Section) and self.settings.look(key := owner.child(name)) == REQUIRED:
                    self.settings.read[:] = [key]
                    self._impossible("MissingMandatoryValue", f"Missing mandatory value: {key}", node, frame)
                if isinstance(owner, (str, int, float, type(None))) and not hasattr(owner, name):
                    words = f"'{type(owner).__name__}' object has no attribute '{name}'"
                    self._impossible("AttributeError", words, node, frame)
                return self._attribute(owner, name)
            case ast.JoinedStr(values=parts):
                texts = [self._value(part, frame) for part in parts]
                known = all(isinstance(text, str) for text in texts)
                return "".join(texts) if known else UNCLEAR
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                found = self._value(inner, frame)
                return str(found) if isinstance(found, (str, int)) else UNCLEAR
            case ast.Tuple(elts=parts):
                return tuple(self._value(part, frame) for part in parts)
            case ast.List(elts=parts):
                return [self._value(part, frame) for part in parts]
            case ast.Set(elts=parts):
                return as_set(self._value(part, frame) for part in parts)
            case ast.ListComp(elt=element, generators=[ast.comprehension(target=target, iter=inner, ifs=[])]):
                values = self._value(inner, frame)
                if not isinstance(values, (list, tuple)):
                    return UNCLEAR
                return [self._element(element, target, value, frame) for value in values]
            case ast.Dict(keys=keys, values=values):
                found = [self._value(key, frame) if key else UNCLEAR for key in keys]
                if not all(isinstance(key, (str, int)) for key in found):
                    return UNCLEAR
                return dict(zip(found, (self._value(value, frame) for value in values), strict=True))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                known = self._truth(self._value(operand, frame))
                return UNCLEAR if known is UNCLEAR else not known
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                positive = self._value(operand, frame)
                return -positive if isinstance(positive, (int, float)) else UNCLEAR
            case ast.BoolOp(op=op, values=values):
                return self._joined(isinstance(op, ast.And), values, frame)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = self._truth(self._value(test, frame))
                return UNCLEAR if known is UNCLEAR else self._value(body if known else orelse, frame)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compared(node, left, ops, comparators, frame)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                values = self._value(left, frame), self._value(right, frame)
                if values[0] is UNCLEAR and values[1] == 0 and isinstance(op, (ast.Mod, ast.FloorDiv)):
                    self._impossible("ZeroDivisionError", "division by zero", node, frame)
                return self._applied(ARITHMETIC[type(op)], *values, frame, node)
            case ast.Subscript(value=inner, slice=index):
                return self._item(self._value(inner, frame), self._value(index, frame))
            case ast.Call():
                return self._call(node, frame)
            case ast.Await(value=ast.Call() as call):
                return self._call(call, frame, awaited=True)
        return UNCLEAR

    def _element(self, node: ast.expr, target: ast.expr, value: Any, frame: Frame) -> Any:
        """Return one element of a comprehension."""
        inner = replace(frame, names=dict(frame.names), keys=dict(frame.keys))
        self._changes.store(target, value, inner, ())
        return self._value(node, inner)

    def _joined(self, every: bool, values: Sequence[ast.expr], frame: Frame) -> Any:
        unclear = False
        found: Any = UNCLEAR
        for value in values:
            try:
                found = self._value(value, frame)
            except RefusedError:
                if unclear:
                    return UNCLEAR
                raise
            known = self._truth(found)
            if known is UNCLEAR:
                unclear = True
            elif known is not every:
                return found if isinstance(found, bool) or not unclear else UNCLEAR
        return UNCLEAR if unclear else found

    def _compared(
        self,
        node: ast.expr,
        left: ast.expr,
        ops: Sequence[ast.cmpop],
        comparators: Sequence[ast.expr],
        frame: Frame,
    ) -> Any:
        values = [self._value(comparator, frame) for comparator in (left, *comparators)]
        for place, op in enumerate(ops):
            found = self._compare(op, values[place], values[place + 1], frame, node)
            if found is UNCLEAR or not found:
                return found
        return True

    def _compare(self, op: ast.cmpop, left: Any, right: Any, frame: Frame, node: ast.expr) -> Any:
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Section) and isinstance(left, str):
            there = self.settings.value_in(right, left) is not MISSING
            return there is isinstance(op, ast.In)
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, NOT_ITERABLE):
            words = f"argument of type '{type(right).__name__}' is not iterable"
            self._impossible("TypeError", words, node, frame)
        if UNCLEAR in (left, right) or MISSING in (left, right):
            return UNCLEAR
        if isinstance(op, (ast.Is, ast.IsNot)) and (left is None or right is None):
            return (left is right) is isinstance(op, ast.Is)
        return self._applied(COMPARE[type(op)], left, right, frame, node)

    def _applied(
        self, operation: Callable[[Any, Any], Any], left: Any, right: Any, frame: Frame, node: ast.expr
    ) -> Any:
        for value in (left, right):
            if not is_plain(value):
                return UNCLEAR
        try:
            return operation(left, right)
        except (TypeError, ZeroDivisionError) as error:
            self._impossible(type(error).__name__, str(error), node, frame)
        except ValueError:
            pass
        return UNCLEAR

    def _item(self, value: Any, index: Any) -> Any:
        if isinstance(value, Section) and isinstance(index, str):
            return self._attribute(value, index)
        if isinstance(value, Made) and isinstance(index, str):
            return self._attribute(value, index)
        if isinstance(value, dict) and isinstance(index, (str, int)):
            return value.get(index, UNCLEAR)
        if isinstance(value, (list, tuple, str)) and isinstance(index, int):
            return value[index] if -len(value) <= index < len(value) else UNCLEAR
        return UNCLEAR

    # Calls

    def _call(self, node: ast.Call, frame: Frame, *, awaited: bool = False) -> Any:
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(
            not argument.arg for argument in node.keywords
        ):
            return UNCLEAR
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                return self._above(name, node, frame)
            case ast.Attribute(value=ast.Name(id="object"), attr="__setattr__"):
                owner, name, value = (self._value(argument, frame) for argument in node.args[:3])
                if isinstance(owner, Made) and isinstance(name, str):
                    owner.fields[name] = value
                return None
        keys: dict[str | int, tuple[str, ...]] = {}
        given = [self._argument(argument, place, keys, frame) for place, argument in enumerate(node.args)]
        named = {
            argument.arg: self._argument(argument.value, argument.arg, keys, frame)
            for argument in node.keywords
            if argument.arg
        }
        name = dotted(node.func)
        if name in self._calls:
            return self._calls[name]
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "manual_seed" and given and isinstance(given[0], (str, float)):
                words = f"manual_seed expected a long, but got {type(given[0]).__name__}"
                self._impossible("RuntimeError", words, node, frame)
            owner = self._value(node.func.value, frame)
            answer = known_calls.method_result(self.settings, owner, node.func.attr, given)
            if answer is not known_calls.NOTHING:
                return answer
        if name in ("getattr", "hasattr") and len(given) > 1 and isinstance(given[1], str):
            return known_calls.attribute_of(self.settings, name, given)
        if name == "callable" and len(given) == 1:
            return isinstance(given[0], FunctionNode) or (False if is_plain(given[0]) else UNCLEAR)
        if name == "isinstance" and len(node.args) == 2:
            return is_instance(given[0], node.args[1])
        if name == "OmegaConf.select" and len(given) > 1 and isinstance(given[0], Section):
            return known_calls.selected(self.settings, given[0], given[1], named.get("default"))
        if name.rpartition(".")[2] == "get_args" and given and isinstance(given[0], Choices):
            return given[0].values
        if name.rpartition(".")[2] == "omega_conf_to_dataclass" and given and isinstance(given[0], Section):
            return self.made(given[0].key) if len(given) == 1 and not named else UNCLEAR
        if name in ("os.getenv", "os.environ.get") and given and isinstance(given[0], str):
            found = self._variable(given[0])
            return (given[1] if len(given) > 1 else None) if found is None else found
        if name in known_calls.BUILT_IN and name not in frame.names:
            return self._built_in(name, given, named, node, frame)
        function = self._value(node.func, frame)
        self._update(node, given, keys.get(0, ()), frame)
        self._changes.call(node, frame)
        if isinstance(function, ClassNode) and self.definitions.is_foreign(function):
            made = function
            function = self.definitions.method(made, "__init__") or UNCLEAR
            if isinstance(function, FunctionNode):
                function = replace(function, bound=Made(made, {}))
        if not isinstance(function, FunctionNode):
            return UNCLEAR
        try:
            return self.call(function, given, named, keys, awaited=awaited)
        except NotFollowedError:
            for argument in (function.bound, *given, *named.values()):
                if isinstance(argument, Made):
                    blur(argument)
            return UNCLEAR

    def _argument(
        self, node: ast.expr, place: str | int, keys: dict[str | int, tuple[str, ...]], frame: Frame
    ) -> Any:
        before = len(self.settings.read)
        found = self._value(node, frame)
        keys[place] = tuple(self.settings.read[before:])
        return found

    def _above(self, name: str, node: ast.Call, frame: Frame) -> Any:
        if not isinstance(frame.bound, Made) or frame.owner is None:
            return UNCLEAR
        method = self.definitions.method(frame.bound.owner, name, above=frame.owner)
        if method is None:
            return UNCLEAR
        keys: dict[str | int, tuple[str, ...]] = {}
        given = [self._argument(argument, place, keys, frame) for place, argument in enumerate(node.args)]
        named = {
            keyword.arg: self._argument(keyword.value, keyword.arg, keys, frame)
            for keyword in node.keywords
            if keyword.arg
        }
        return self.call(
            FunctionNode(method.node, method.module, frame.bound, method.owner), given, named, keys
        )

    def _update(self, node: ast.Call, given: Sequence[Any], keys: Iterable[str], frame: Frame) -> None:
        """Refuse the `update` of a dictionary with a value that is none."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "update":
            return
        is_dict = isinstance(self._changes.reached(node.func.value, frame), dict)
        if is_dict and len(given) == 1 and isinstance(given[0], (type(None), bool, int, float, str)):
            try:
                dict(given[0])  # type: ignore[arg-type]
            except (TypeError, ValueError) as error:
                self.settings.read[:] = keys
                self._impossible(type(error).__name__, str(error), node, frame)

    def _built_in(
        self, name: str, given: Sequence[Any], named: Mapping[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        if named or not all(map(is_plain, given)):
            return UNCLEAR
        try:
            return known_calls.BUILT_IN[name](*given)
        except (TypeError, ValueError) as error:
            if name in ("int", "float"):
                self._impossible(type(error).__name__, str(error), node, frame)
            return UNCLEAR

    # What is raised

    def _impossible(
        self, raised: str, words: str, node: ast.AST, frame: Frame, line: int | None = None
    ) -> None:
        place = self.definitions.place(frame.module, line or getattr(node, "lineno", None) or 0)
        keys = self.settings.keys_read()
        raise RefusedError(
            Refusal(raised, words, place, words_of(node), keys, self.settings.keys_around(keys))
        )

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
        raise RefusedError(Refusal(raised.rpartition(".")[2], words[:_TEXT], place, condition, keys, around))

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
