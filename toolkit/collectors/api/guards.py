"""Conditions and handlers around a use: whether the line is reached, and whether a miss is expected."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.api.value import GONE, NOTHING, Instance, Probe, Scope, Value
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.answers import External, Missing, Present
from verl_doctor.toolkit.sources.python.evaluate import COMPARE
from verl_doctor.toolkit.sources.python.source import dotted, is_none, walk
from verl_doctor.toolkit.sources.python.summary_class import is_type_checking
from verl_doctor.toolkit.sources.python.symbols import Class, Module

# Every run has a process of rank 0, so code for rank 0 is run in every job.
_ALWAYS_SOMEWHERE = re.compile(r"(?:[\w.]+\.)?(?:get_)?\w*rank(?:\(\))? == 0")
# Every run has a worker that holds both actor and rollout (verl/workers/fsdp_workers.py).
_ROLE = re.compile(r"self\._is_(?:actor|rollout)(?: or self\._is_(?:actor|rollout))?")
# The machines that the doctor judges have GPUs.
_HERE = re.compile(r"not (?:\w+\.)*is_npu_available(?:\(\))?")
_CATCHES = {
    "ModuleNotFoundError": frozenset({"ModuleNotFoundError", "ImportError", "Exception", "BaseException"}),
    "ImportError": frozenset({"ImportError", "Exception", "BaseException"}),
    "AttributeError": frozenset({"AttributeError", "Exception", "BaseException"}),
    "TypeError": frozenset({"TypeError", "Exception", "BaseException"}),
}
# Functions and attributes with which a program detects what exists.
_TESTS = frozenset(
    {"__dict__", "dir", "find_spec", "getfullargspec", "hasattr", "model_fields", "signature", "vars"}
)
_ANYTHING = frozenset({"Exception", "BaseException"})
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError"})
_HELPERS = frozenset({"is_version_ge"})
# verl checks this before it rejects a vLLM: another engine may serve instead
# (verl/third_party/vllm/__init__.py).
_OTHER_ENGINES = {"is_sglang_available": "sglang"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The value of a condition: True, False, or None if undecided.

    `probe`: it tests what a library offers.
    """

    holds: bool | None
    probe: bool = False

    def negated(self) -> Verdict:
        """Return the verdict on the opposite."""
        return Verdict(None if self.holds is None else not self.holds, self.probe)


def judge(test: ast.expr, reader: ValueReader, scope: Scope) -> Verdict:
    """Evaluate a condition as far as the two source trees or a flag set elsewhere decide it."""
    verdict = judge_by_trees(test, reader, scope)
    if verdict.holds is None and (held := reader.by_flags(test, scope)) is not None:
        return Verdict(held, verdict.probe)
    return verdict


def taken(test: ast.expr, reader: ValueReader, scope: Scope) -> bool | None:
    """Return whether the job takes this condition's branch, by trees or settings; None if undecided."""
    verdict = judge(test, reader, scope)
    return verdict.holds if verdict.holds is not None or verdict.probe else reader.by_settings(test, scope)


def judge_by_trees(test: ast.expr, reader: ValueReader, scope: Scope) -> Verdict:
    """Like `judge`, without flags."""
    match test:
        case ast.Constant(value=value):
            return Verdict(bool(value))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return judge_by_trees(operand, reader, scope).negated()
        case ast.BoolOp(op=op, values=values):
            return _combined(
                [judge_by_trees(value, reader, scope) for value in values], isinstance(op, ast.And)
            )
        case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str(name))]):
            return Verdict(_has(reader.value(owner, scope), name, reader), probe=True)
        case ast.Call(
            func=ast.Attribute(value=text, attr="startswith"), args=[ast.Constant(value=str(start))]
        ):
            version_text = reader.value(text, scope)
            about_versions = _mentions_a_probe(text)
            return Verdict(
                version_text.startswith(start) if isinstance(version_text, str) else None, about_versions
            )
        case ast.Call(func=ast.Attribute(value=ast.Set(elts=elements), attr="issubset"), args=[among]):
            members = reader.value(among, scope)
            if isinstance(members, Probe):
                return _combined(
                    [_inside(reader.value(element, scope), members) for element in elements], both=True
                )
        case ast.Call(func=function) if dotted(function).rpartition(".")[2] in _HELPERS:
            return _helper(test, reader, scope)
        case ast.Call(args=[ast.Constant(value=str(name))]) if _finds_module(test, reader, scope):
            return _has_module(name, reader)
        case ast.Name() if (before := _library_test(test, scope)) is not None:
            return judge_by_trees(before[0], reader, before[1])
        case ast.Call(func=ast.Name(id=name), args=[]) if name in _OTHER_ENGINES:
            engines = reader.around.engines
            return Verdict(None if engines is None else _OTHER_ENGINES[name] in engines)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _compared([left, *comparators], ops, reader, scope)
    if is_type_checking(test):
        return Verdict(holds=False)
    return Verdict(None, _mentions_a_probe(test))


def _finds_module(node: ast.expr, reader: ValueReader, scope: Scope) -> bool:
    """Return whether an expression is `importlib.util.find_spec(...)`."""
    callee = reader.value(node.func, scope) if isinstance(node, ast.Call) else None
    return isinstance(callee, External) and callee.dotted == "importlib.util.find_spec"


def _has_module(name: str, reader: ValueReader) -> Verdict:
    own = reader.sources.own_name(name)
    answer = reader.sources.import_module(name) if own is not None else None
    return Verdict(
        True if isinstance(answer, Present) else False if isinstance(answer, Missing) else None, probe=True
    )


def _library_test(node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """Return the test of a library that is stored in a name: `HAS_RESET = hasattr(AsyncLLM, "reset")`."""
    home = scope.find(node.id) if isinstance(node, ast.Name) else None
    if home is None or len(home[1]) != 1:
        return None
    condition = home[1][0].expression
    about = isinstance(condition, (ast.Call, ast.Compare)) and _mentions_a_probe(condition)
    return (condition, home[0]) if condition is not None and about else None


def _combined(verdicts: list[Verdict], both: bool) -> Verdict:
    """Combine verdicts: one false decides `and`, one true `or`; else one undecided leaves it undecided."""
    decisive = not both
    probe = any(verdict.probe for verdict in verdicts)
    if any(verdict.holds is decisive for verdict in verdicts):
        return Verdict(decisive, probe)
    undecided = [verdict for verdict in verdicts if verdict.holds is None]
    if not undecided:
        return Verdict(not decisive, probe)
    return Verdict(None, any(verdict.probe for verdict in undecided))


def _has(owner: Value, name: str, reader: ValueReader) -> bool | None:
    if isinstance(owner, (Instance, Class, Module)):
        answer = (
            reader.sources.member_of_class(owner.of if isinstance(owner, Instance) else owner, name)
            if isinstance(owner, (Instance, Class))
            else reader.sources.member(owner, name)
        )
        return True if isinstance(answer, Present) else False if isinstance(answer, Missing) else None
    return False if owner is GONE else None


def _compared(nodes: list[ast.expr], ops: list[ast.cmpop], reader: ValueReader, scope: Scope) -> Verdict:
    values = [reader.value(node, scope) for node in nodes]
    if len(ops) == 1 and isinstance(ops[0], (ast.Is, ast.IsNot)) and is_none(nodes[1]):
        match nodes[0]:
            case ast.Call(args=[ast.Constant(value=str(name))]) if _finds_module(nodes[0], reader, scope):
                found = _has_module(name, reader)
                return found if isinstance(ops[0], ast.IsNot) else found.negated()
        known = isinstance(values[0], (str, Version))  # a package is installed if its version is known
        return Verdict(isinstance(ops[0], ast.IsNot), probe=True) if known else Verdict(None)
    if len(ops) == 1 and isinstance(ops[0], (ast.In, ast.NotIn)) and isinstance(values[1], Probe):
        verdict = _inside(values[0], values[1])
        return verdict.negated() if isinstance(ops[0], ast.NotIn) else verdict
    if len(ops) == 1 and isinstance(ops[0], (ast.In, ast.NotIn)):
        verdict = _among(values[0], nodes, reader, scope)
        return verdict.negated() if isinstance(ops[0], ast.NotIn) else verdict
    if (held := _by_defaults(nodes, ops, reader, scope)) is not None:
        return Verdict(held, probe=True)
    results = [_ordered(left, op, right) for left, op, right in zip(values, ops, values[1:], strict=False)]
    about_versions = any(isinstance(value, Version) for value in values) or any(
        _mentions_a_probe(node) or _library_test(node, scope) is not None for node in nodes
    )
    return Verdict(None if None in results else all(results), about_versions)


def _by_defaults(
    nodes: list[ast.expr], ops: list[ast.cmpop], reader: ValueReader, scope: Scope
) -> bool | None:
    """Evaluate `getattr(thing, "name", 0) > 0` for a thing without that name; None for any other test."""
    compare = COMPARE.get(type(ops[0])) if len(ops) == 1 else None
    sides: list[Any] = []
    for node in nodes:
        match node:
            case ast.Constant(value=value):
                sides.append(value)
            case ast.Call(
                func=ast.Name(id="getattr"),
                args=[owner, ast.Constant(value=str(name)), ast.Constant(value=value)],
            ) if _has(reader.value(owner, scope), name, reader) is False:
                sides.append(value)
    if compare is None or len(sides) < len(nodes) or all(isinstance(node, ast.Constant) for node in nodes):
        return None
    try:
        return bool(compare(*sides))
    except TypeError:
        return None


def _inside(name: Value, probe: Probe) -> Verdict:
    if not isinstance(name, str):
        return Verdict(None, probe=True)
    return Verdict(True if name in probe.names else False if probe.complete else None, probe=True)


def _among(value: Value, nodes: list[ast.expr], reader: ValueReader, scope: Scope) -> Verdict:
    """Evaluate `version in ("0.5.4", "0.6.3")`."""
    probe = any(_mentions_a_probe(node) for node in nodes)
    if not isinstance(nodes[1], (ast.Tuple, ast.List, ast.Set)) or not (
        isinstance(value, (str, Version)) or value is NOTHING
    ):
        return Verdict(None, probe)
    results = [_ordered(value, ast.Eq(), reader.value(element, scope)) for element in nodes[1].elts]
    if True in results:
        return Verdict(True, probe)
    return Verdict(None if None in results else False, probe)


def _ordered(left: Value, op: ast.cmpop, right: Value) -> bool | None:
    """Compare two versions or two strings. None is equal to neither."""
    if (left is NOTHING and isinstance(right, (str, Version))) or (
        right is NOTHING and isinstance(left, (str, Version))
    ):
        return {ast.Eq: False, ast.NotEq: True}.get(type(op))
    both_text = isinstance(left, str) and isinstance(right, str)
    if not both_text and not (isinstance(left, Version) and isinstance(right, Version)):
        return None
    match op:
        case ast.Eq():
            return left == right
        case ast.NotEq():
            return left != right
    order = COMPARE.get(type(op)) if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) else None
    return None if order is None else bool(order(left, right))  # strings too, as wrongly as Python does it


def _helper(call: ast.Call, reader: ValueReader, scope: Scope) -> Verdict:
    """Evaluate `is_version_ge(pkg="vllm", minver="0.7.3")`, verl's own helper (verl/utils/vllm/utils.py)."""
    given = {keyword.arg: reader.value(keyword.value, scope) for keyword in call.keywords if keyword.arg}
    given |= dict(
        zip(("pkg", "minver"), (reader.value(argument, scope) for argument in call.args), strict=False)
    )
    version = reader.versions.get(str(given.get("pkg", "vllm")))
    if version and isinstance(given.get("minver"), str):
        try:
            return Verdict(Version(version) >= Version(str(given["minver"])), probe=True)
        except InvalidVersion:
            pass
    return Verdict(None, probe=True)


def _mentions_a_probe(test: ast.expr) -> bool:
    """Return whether an undecided condition tests the package's version, a signature or an attribute."""
    for node in walk(test):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in _TESTS or "version" in name.lower():
            return True
    return False


def is_universal(text: str) -> bool:
    """Return whether the condition holds in some process of every run, such as `self.node_rank == 0`."""
    return any(pattern.fullmatch(text) for pattern in (_ALWAYS_SOMEWHERE, _ROLE, _HERE))


def is_none_test(test: ast.expr) -> bool:
    """Return whether the condition is `x is None`."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Is)
        and len(test.ops) == 1
        and is_none(test.comparators[0])
    )


def rules_out(test: ast.expr) -> bool:
    """Return whether a condition on versions holds for releases that are too old, or for particular releases.

    `version >= "0.12"` does not rule out any: the code below it is written for newer releases.
    """
    operators = {type(op) for node in walk(test) if isinstance(node, ast.Compare) for op in node.ops}
    return not operators & {ast.Gt, ast.GtE}


def opposite(test: ast.expr) -> ast.expr:
    """Return the negation of a condition, as a person would write it."""
    flipped: dict[type[ast.cmpop], type[ast.cmpop]] = {
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
        ast.Lt: ast.GtE,
        ast.GtE: ast.Lt,
        ast.Gt: ast.LtE,
        ast.LtE: ast.Gt,
        ast.In: ast.NotIn,
        ast.NotIn: ast.In,
        ast.Is: ast.IsNot,
        ast.IsNot: ast.Is,
    }
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.BoolOp):
        other = ast.Or() if isinstance(test.op, ast.And) else ast.And()
        return ast.BoolOp(other, [opposite(value) for value in test.values])
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return ast.Compare(test.left, [flipped[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def exits(body: list[ast.stmt]) -> bool:
    """Return whether a block never continues with the statement after it."""
    if not body:
        return False
    last = body[-1]
    match last:
        case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.Expr(value=ast.Call(func=function)):
            return dotted(function) in {"exit", "os._exit", "quit", "sys.exit"}
    return isinstance(last, ast.If) and exits(last.body) and exits(last.orelse)


@dataclass(frozen=True, slots=True)
class Handler:
    """An `except` clause: what it catches, and whether it only re-raises."""

    names: frozenset[str]
    raises: bool

    def takes(self, error: str) -> bool:
        """Return whether it catches an error of this type. A bare `except` catches everything."""
        return not self.names or bool(self.names & _CATCHES.get(error, _ANYTHING | {error}))

    @property
    def only_for_imports(self) -> bool:
        """Whether it catches nothing but failed imports."""
        return bool(self.names) and self.names <= _IMPORT_ERRORS

    @property
    def text(self) -> str:
        """The clause as text for a message."""
        return f"except {', '.join(sorted(self.names))}".removesuffix(" ")


def handler_of(node: ast.ExceptHandler, scope: Scope) -> Handler:
    """Read an `except` clause; what it catches may be a name bound to a tuple of exceptions."""
    caught = node.type
    if isinstance(caught, ast.Name) and (bound := scope.find(caught.id)) is not None:
        caught = next((entry.expression for entry in bound[1] if entry.expression), caught)
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught] if caught else []
    names = frozenset(dotted(kind).rpartition(".")[2] or "an expression" for kind in kinds)
    return Handler(names, raises=isinstance(node.body[-1], ast.Raise))


def suppressing(item: ast.withitem, reader: ValueReader, scope: Scope) -> Handler | None:
    """Read `with suppress(ImportError):`, which guards like an `except` that does nothing."""
    call = item.context_expr
    if not isinstance(call, ast.Call):
        return None
    callee = reader.value(call.func, scope)
    if isinstance(callee, External) and callee.dotted == "contextlib.suppress":
        return Handler(frozenset(dotted(argument).rpartition(".")[2] for argument in call.args), raises=False)
    return None


def error_of(kind: str, answer: object) -> str:
    """Return the exception that a missing name raises.

    For a refusal, `answer` is the name of its exception.
    """
    if kind == "refusal":
        return str(answer)
    if kind == "import":
        missing_module = isinstance(answer, Missing) and answer.what == "module"
        return "ModuleNotFoundError" if missing_module else "ImportError"
    if kind == "name":
        return "NameError"
    if kind == "patch" and isinstance(answer, Missing) and answer.what == "module":
        return "ModuleNotFoundError"
    return "AttributeError" if kind in {"attribute", "store", "patch", "sent", "result"} else "TypeError"
