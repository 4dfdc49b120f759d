"""Expressions: their values, as far as the configuration and the sources determine them."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.definitions import Definitions, FunctionNode
from verl_doctor.toolkit.sources.python.evaluate import ARITHMETIC, COMPARE, UNCLEAR, as_set
from verl_doctor.toolkit.sources.python.refusals.changes import Changes
from verl_doctor.toolkit.sources.python.refusals.refused import Refusal, RefusedError
from verl_doctor.toolkit.sources.python.refusals.settings import REQUIRED, Settings
from verl_doctor.toolkit.sources.python.refusals.syntax import words_of
from verl_doctor.toolkit.sources.python.refusals.values import (
    NO_MAPPING,
    NOT_ITERABLE,
    PLAIN,
    Frame,
    Made,
    Section,
    dtype,
    is_plain,
)
from verl_doctor.toolkit.sources.python.source import dotted

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}


class Expressions(ABC):
    """Returns the value of an expression, `UNCLEAR` where it is not determined.

    Raises RefusedError for an impossible operation.
    """

    settings: Settings
    definitions: Definitions
    _changes: Changes
    _variable: Callable[[str], Any]

    @abstractmethod
    def _call(self, node: ast.Call, frame: Frame, *, awaited: bool = False) -> Any:
        """Return the result of a call."""

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
                unpacked = (part for key, part in zip(keys, values, strict=True) if key is None)
                for part in unpacked:
                    if isinstance(mapping := self._value(part, frame), NO_MAPPING):
                        words = f"'{type(mapping).__name__}' object is not a mapping"
                        self._impossible("TypeError", words, node, frame)
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
                if values[0] is None and values[1] is UNCLEAR:  # no type adds to None, and only `|` takes it
                    self._impossible(
                        "TypeError",
                        f"unsupported operand type(s) for {_SIGNS[type(op)]}: 'NoneType' and another",
                        node,
                        frame,
                    )
                return self._applied(ARITHMETIC[type(op)], *values, frame, node)
            case ast.Subscript(value=inner, slice=index):
                value, place = self._value(inner, frame), self._value(index, frame)
                if isinstance(value, (list, tuple)) and type(place) is int and place >= len(value):
                    kind = type(value).__name__
                    self._impossible("IndexError", f"{kind} index out of range", node, frame)
                return self._item(value, place)
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
        match ops, comparators, values[0]:
            case [ast.In() | ast.NotIn()], [ast.Attribute(value=ast.Name(id="os"), attr="environ")], str(
                name
            ):
                found = self._variable(name)
                return UNCLEAR if found is UNCLEAR else (found is not None) is isinstance(ops[0], ast.In)
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
        except (ValueError, OverflowError):
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

    def _impossible(
        self, raised: str, words: str, node: ast.AST, frame: Frame, line: int | None = None
    ) -> None:
        place = self.definitions.place(frame.module, line or getattr(node, "lineno", None) or 0)
        keys = self.settings.keys_read()
        raise RefusedError(
            Refusal(raised, words, place, words_of(node), keys, self.settings.keys_around(keys))
        )
