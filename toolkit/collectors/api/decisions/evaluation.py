"""The value of an expression at a line, as far as the trees, the settings and the variables decide it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.api.decisions.bindings import Bindings, agreed
from verl_doctor.toolkit.collectors.api.decisions.operand import (
    THERE,
    Operand,
    is_plain,
    is_unclear,
    note,
    note_comparison,
    note_truth,
)
from verl_doctor.toolkit.collectors.api.decisions.own_attributes import OwnAttributes
from verl_doctor.toolkit.collectors.api.guards import judge_by_trees
from verl_doctor.toolkit.collectors.api.settings import ROLLOUT, Settings, SettingsSection
from verl_doctor.toolkit.collectors.api.value import Scope, SelfOf
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.answers import Missing, Present
from verl_doctor.toolkit.sources.python.evaluate import ARITHMETIC, COMPARE, UNCLEAR, applied
from verl_doctor.toolkit.sources.python.source import dotted
from verl_doctor.toolkit.sources.python.symbols import Module

_DEEPEST = 40
_PLAIN = {"bool": bool, "float": float, "int": int, "len": len, "str": str}
_OF_VERSIONS = frozenset({"base_version", "major", "micro", "minor", "release"})
_TEXT = frozenset({"endswith", "lower", "split", "startswith", "strip", "upper"})
# verl's functions that convert a section to an object, or back.
_SAME = frozenset({"omega_conf_to_dataclass", "to_container", "to_object", "deepcopy", "create"})
_READS_VARIABLE = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})
_ENVIRONMENT = frozenset({"os.environ", "environ"})
# verl's names for the mesh dimension across which a rollout is sharded.
_TENSOR_PARALLEL = ("infer_tp", "tensor_model_parallel_size")


class Evaluation:
    """Evaluates the expressions of one module.

    Without settings, only constants and the outcomes of imports are known.
    """

    def __init__(self, reader: ValueReader, settings: Settings | None = None) -> None:
        self.reader, self.settings = reader, settings
        self.active: set[tuple[int, str]] = set()
        self.first_only = False
        self.names, self.attributes = Bindings(self), OwnAttributes(self)
        self.notes = Settings() if settings is None else settings  # notes what is consulted
        # The last expression that was looked up in the settings, and the key at which it was found.
        self._looked_up: tuple[ast.expr, str] | None = None

    def value(self, node: ast.expr, scope: Scope, line: int) -> Any:
        """Return the value of an expression at a line: a Python value, a `SettingsSection`, or UNCLEAR."""
        key = (id(node), "")
        if key in self.active or len(self.active) > _DEEPEST:
            return UNCLEAR
        self.active.add(key)
        try:
            return self._value(node, scope, line)
        finally:
            self.active.discard(key)

    def _value(self, node: ast.expr, scope: Scope, line: int) -> Any:
        if isinstance(node, (ast.Attribute, ast.Call)):
            known = self.reader.value(node, scope)
            if isinstance(known, (str, Version)):
                return known
            if (
                isinstance(node, ast.Call)
                and (answer := self.reader.return_value(node, scope, self)) is not UNCLEAR
            ):
                return answer
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                values = tuple(self.value(element, scope, line) for element in elements)
                return UNCLEAR if UNCLEAR in values else values
            case ast.Dict(keys=keys):
                return THERE if any(key is not None for key in keys) else {} if not keys else UNCLEAR
            case ast.Name(id=name):
                return self.names.value(name, scope, line)
            case ast.Attribute(value=owner, attr=name) if isinstance(
                of := self.reader.value(owner, scope), Version
            ):
                return getattr(of, name) if name in _OF_VERSIONS else UNCLEAR
            case ast.Attribute(value=owner, attr="__version_tuple__"):
                of = self.reader.read(self.reader.value(owner, scope), "__version__")
                return _release(of) if isinstance(of, str) else UNCLEAR
            case ast.Subscript(value=owner, slice=ast.Slice() | ast.Constant(value=int()) as part):
                return _cut(self.value(owner, scope, line), part)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(node, owner, name, scope, line)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name))):
                if dotted(owner) in _ENVIRONMENT and self.settings is not None:
                    return self.settings.variable(name, UNCLEAR)
                return self._item(node, self.value(owner, scope, line), name, UNCLEAR)
            case ast.Call():
                return self._call(node, scope, line)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                held = self.test(operand, scope, line)
                return UNCLEAR if held is None else not held
            case ast.BoolOp(op=op, values=parts):
                return self._joined(isinstance(op, ast.And), parts, scope, line)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                held = self.test(test, scope, line)
                sides = (body, orelse) if held is None else ((body,) if held else (orelse,))
                return agreed([self.value(side, scope, line) for side in sides])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compared([left, *comparators], ops, scope, line)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                operands = [self._operand(side, scope, line) for side in (left, right)]
                if is_unclear(operands, self.notes):
                    return UNCLEAR
                note(operands, self.notes)
                return applied(ARITHMETIC[type(op)], *(operand.value for operand in operands))
        return UNCLEAR

    def _numbers(self, node: ast.Call, scope: Scope, line: int) -> Any:
        """Evaluate the two expressions that turn a version into a tuple of numbers.

        They are `tuple(map(int, version.split(".")))` and `tuple(int(part) for part in version.split("."))`.
        """
        match node.args:
            case [ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="int"), parts])]:
                return _integers(self.value(parts, scope, line))
            case [
                ast.GeneratorExp(
                    elt=ast.Call(func=ast.Name(id="int"), args=[ast.Name(id=part)]),
                    generators=[ast.comprehension(target=ast.Name(id=each), iter=parts, ifs=[])],
                )
            ] if part == each:
                return _integers(self.value(parts, scope, line))
            case [inner]:
                found = self.value(inner, scope, line)
                return found if isinstance(found, tuple) and found is not THERE else UNCLEAR
        return UNCLEAR

    def test(self, node: ast.expr, scope: Scope, line: int) -> bool | None:
        """Like `holds`, for a part of a condition."""
        known = judge_by_trees(node, self.reader, scope)
        if known.holds is not None or known.probe:
            return known.holds
        return self.truth(node, scope, line)

    def truth(self, node: ast.expr, scope: Scope, line: int) -> bool | None:
        """Return whether a condition holds, without what the trees decide about the whole of it."""
        if isinstance(node, ast.BoolOp):
            return self._all_or_any(isinstance(node.op, ast.And), node.values, scope, line)
        operand = self._operand(node, scope, line)
        note_truth(operand, self.notes)
        value = operand.value
        return None if value is UNCLEAR or isinstance(value, SettingsSection) else bool(value)

    def _all_or_any(self, every: bool, parts: Iterable[ast.expr], scope: Scope, line: int) -> bool | None:
        """Return whether `and` (`every`) or `or` holds; None if undecided.

        Unlike `_joined`, it needs no values.
        """
        unclear = False
        for part in parts:
            held = self.test(part, scope, line)
            if held is not None and held is not every:
                return held
            unclear = unclear or held is None
        return None if unclear else every

    def _joined(self, every: bool, parts: Iterable[ast.expr], scope: Scope, line: int) -> Any:
        """Evaluate `and` (`every`) or `or`: one operand may decide the result although another is unclear."""
        unclear, last = False, UNCLEAR
        for part in parts:
            held = self.test(part, scope, line)
            last = self.value(part, scope, line)
            if not every and not unclear and isinstance(last, SettingsSection):
                return last  # `section or {}`: either way a key that is not in it is missing
            if held is not None and held is not every:
                return last if last is not UNCLEAR and not unclear else held
            unclear = unclear or held is None
        if unclear:
            return UNCLEAR
        return last if last is not UNCLEAR else every

    def _compared(self, nodes: list[ast.expr], ops: list[ast.cmpop], scope: Scope, line: int) -> Any:
        operands = [self._operand(node, scope, line) for node in nodes]
        values = [operand.value for operand in operands]
        if len(ops) == 1 and isinstance(ops[0], (ast.In, ast.NotIn)) and dotted(nodes[1]) in _ENVIRONMENT:
            note(operands, self.notes)
            variable = (
                self.settings.variable(values[0], None)
                if self.settings and isinstance(values[0], str)
                else UNCLEAR
            )
            return UNCLEAR if variable is UNCLEAR else (variable is not None) is isinstance(ops[0], ast.In)
        by_identity = len(ops) == 1 and isinstance(ops[0], (ast.Is, ast.IsNot))
        if by_identity and not isinstance(nodes[1], ast.Constant):
            note(operands, self.notes)  # a right side of None decides although the left side is unclear
        elif not is_unclear(operands, self.notes):
            note_comparison(operands, ops, self.notes)
        if (
            by_identity
            and values[1] is None
            and (values[0] is THERE or isinstance(values[0], SettingsSection))
        ):
            return isinstance(ops[0], ast.IsNot)
        if not all(map(is_plain, values)):
            return UNCLEAR
        found = [applied(COMPARE[type(op)], values[place], values[place + 1]) for place, op in enumerate(ops)]
        return UNCLEAR if UNCLEAR in found else all(found)

    def _operand(self, node: ast.expr, scope: Scope, line: int) -> Operand:
        """Return the value of an expression. What was consulted for it counts only once it is noted."""
        self._looked_up = None
        with self.notes.apart() as consulted:
            value = self.value(node, scope, line)
        if self._looked_up is None or not is_plain(value):
            return Operand(value, consulted)
        looked_up, key = self._looked_up
        if isinstance(node, ast.Name):
            home, entries = scope.find(node.id) or (None, [])
            if home is scope:
                entries = [entry for entry in entries if not _is_from(entry.expression, line)]
            is_key = len(entries) == 1 and entries[0].expression is looked_up
        else:
            is_key = node is looked_up
        return Operand(value, consulted, key if is_key else "")

    def _attribute(self, node: ast.expr, owner: ast.expr, name: str, scope: Scope, line: int) -> Any:
        this = self.reader.value(owner, scope)
        if isinstance(this, SelfOf):
            return self.attributes.value(this.local, name)
        if self.reader.is_watched(this):
            return UNCLEAR
        return self._item(node, self.value(owner, scope, line), name, UNCLEAR)

    def _item(self, node: ast.expr, owner: Any, name: str, default: Any) -> Any:
        """Return the value of `node`, the item `name` of a section or of a dictionary."""
        if isinstance(owner, SettingsSection) and self.settings is not None:
            key, found = self.settings.found(owner, name)
            self._looked_up = (node, key) if key else None
            if isinstance(found, list):
                return tuple(found)
            return default if found is MISSING else found
        return owner.get(name, default) if isinstance(owner, dict) else UNCLEAR

    def _of_module(self, module: Module, name: str, default: Any) -> Any:
        """Return the value of `getattr(module, name, default)`.

        It is returned as far as it is known whether the module has the name.
        """
        answer = self.reader.sources.member(module, name) if self.reader.is_watched(module) else None
        return default if isinstance(answer, Missing) else THERE if isinstance(answer, Present) else UNCLEAR

    def _call(self, node: ast.Call, scope: Scope, line: int) -> Any:
        called = dotted(node.func)
        if called in {"tuple", "list"}:
            return self._numbers(node, scope, line)
        first = node.args[0] if node.args else None
        if called in _READS_VARIABLE and isinstance(first, ast.Constant) and isinstance(first.value, str):
            default = self.value(node.args[1], scope, line) if len(node.args) > 1 else None
            return UNCLEAR if self.settings is None else self.settings.variable(first.value, default)
        if called in _PLAIN and len(node.args) == 1 and not node.keywords and first is not None:
            value = self.value(first, scope, line)
            return _made(_PLAIN[called], value) if is_plain(value) else UNCLEAR
        if called.rpartition(".")[2] in _SAME and first is not None:
            value = self.value(first, scope, line)
            return value if isinstance(value, SettingsSection) or value is None else UNCLEAR
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *rest]):
                default = self.value(rest[0], scope, line) if rest else UNCLEAR
                if isinstance(owner, ast.Name) and owner.id == "self":
                    return self._attribute(node, owner, name, scope, line)
                if isinstance(module := self.reader.value(owner, scope), Module):
                    return self._of_module(module, name, default)
                return self._item(node, self.value(owner, scope, line), name, default)
            case ast.Call(
                func=ast.Attribute(value=owner, attr="get"), args=[ast.Constant(value=str(name)), *rest]
            ):
                default = self.value(rest[0], scope, line) if rest else None
                return self._item(node, self.value(owner, scope, line), name, default)
            case ast.Call(
                func=ast.Attribute(value=ast.Subscript(slice=ast.Constant(value=mesh)), attr="size"), args=[]
            ):
                if mesh == _TENSOR_PARALLEL[0] and self.settings is not None:
                    found = self.settings.at(f"{ROLLOUT}.{_TENSOR_PARALLEL[1]}")
                    return UNCLEAR if found is MISSING else found
            case ast.Call(func=ast.Attribute(value=owner, attr=method), keywords=[]) if method in _TEXT:
                text = self.value(owner, scope, line)
                given = [self.value(argument, scope, line) for argument in node.args]
                if isinstance(text, str) and all(isinstance(argument, str) for argument in given):
                    made = getattr(text, method)(*given)
                    return tuple(made) if isinstance(made, list) else made
        return UNCLEAR


def _is_from(node: ast.expr | None, line: int) -> bool:
    """Return whether an expression begins at this line or below it."""
    return node is not None and node.lineno >= line


def _release(text: str) -> Any:
    try:
        return Version(text).release
    except InvalidVersion:
        return UNCLEAR


def _integers(texts: Any) -> Any:
    is_split = (
        isinstance(texts, tuple) and texts is not THERE and all(isinstance(text, str) for text in texts)
    )
    return tuple(map(int, texts)) if is_split and all(text.isdigit() for text in texts) else UNCLEAR


def _cut(value: Any, part: ast.expr) -> Any:
    """Evaluate `value[:2]` or `value[0]` of a string or a tuple."""
    if value is THERE or not isinstance(value, (str, tuple)):
        return UNCLEAR
    match part:
        case ast.Constant(value=int(place)) if -len(value) <= place < len(value):
            return value[place]
        case ast.Slice(lower=None, upper=ast.Constant(value=int(end)), step=None):
            return value[:end]
    return UNCLEAR


def _made(kind: Any, value: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        return UNCLEAR
