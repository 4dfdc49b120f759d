"""Reads how a trainer calls the job's estimator of advantages, and what it lacks of the batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.registries import ESTIMATOR
from verl_doctor.toolkit.collectors.configuration.registry_reader import enumerated, registrations
from verl_doctor.toolkit.sources.python.definitions import ClassNode, Definitions, FunctionNode
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.refused import Refusal
from verl_doctor.toolkit.sources.python.source import dotted, parsed, walk

_COMPUTES = "compute_advantage"  # how the names of functions begin that compute advantages
_LOOKS_UP = "get_adv_estimator_fn"
_REGISTERS = "register_adv_est"
_LOADS = "select_fields"  # of TransferQueue: the columns that are loaded


@dataclass(frozen=True)
class Estimator:
    """The job's estimator function, the arguments that it gets, and what is raised as the batch lacks one."""

    function: ast.FunctionDef
    given: frozenset[str]
    refusal: Refusal | None

    @property
    def required(self) -> frozenset[str]:
        """Return the names of the arguments that have no default."""
        return frozenset(_required(self.function))


def read_estimator(
    name: str, trainers: Sequence[str], registry: Path, definitions: Definitions
) -> Estimator | None:
    """Return the estimator that the file `registry` registers under a name, as a trainer calls it.

    The result is None where that cannot be determined.
    """
    function = next(registrations(registry, _REGISTERS, name), None)
    for trainer in trainers if isinstance(function, ast.FunctionDef) else ():
        owner = definitions.named(trainer)
        for method in _methods(owner, definitions) if isinstance(owner, ClassNode) else ():
            computes = _computing(method, definitions)
            if computes is not None and isinstance(function, ast.FunctionDef):
                members = enumerated(parsed(registry) or ast.Module([], []))
                reading = _Reading(name, _columns(method, definitions), function, members)
                refusal = reading.judged(computes, definitions)
                return Estimator(function, frozenset(reading.given), refusal)
    return None


@dataclass
class _Reading:
    """Reads the function that looks up the estimator and calls it.

    `columns` are those of the batch, None where they are unknown.
    """

    name: str
    columns: frozenset[str] | None
    function: ast.FunctionDef
    members: Mapping[str, str]  # of the enumeration of estimators
    given: set[str] = field(default_factory=set)  # the arguments of the estimator

    def judged(self, computes: FunctionNode, definitions: Definitions) -> Refusal | None:
        """Return what is raised for a column that the batch does not have."""
        for lacking, text in self._read(computes.node.body):
            return _refusal("AssertionError", text, definitions.place(computes.module, lacking.lineno))
        missing = [name for name in _required(self.function) if name not in self.given]
        if not missing or not self.given:
            return None
        count = f"{len(missing)} required positional argument{'s' if missing[1:] else ''}"
        text = f"{self.function.name}() missing {count}: {', '.join(map(repr, missing))}"
        return _refusal("TypeError", text, definitions.place(computes.module, computes.node.lineno))

    def _read(self, body: Sequence[ast.stmt], *, certain: bool = True) -> Iterator[tuple[ast.stmt, str]]:
        """Note the arguments that are given, and yield the assertions that fail, with their messages."""
        for node in body:
            match node:
                case ast.If(test=test):
                    result = self._test(test)
                    if result is not False:
                        yield from self._read(node.body, certain=certain and result is True)
                    if result is not True:
                        yield from self._read(node.orelse, certain=certain and result is False)
                case ast.Assert(test=test, msg=message) if certain and self._test(test) is False:
                    text = message.value if isinstance(message, ast.Constant) else ast.unparse(test)
                    yield node, str(text)
                case ast.Assign(value=ast.Dict(keys=keys)):
                    self.given.update(str(key.value) for key in keys if isinstance(key, ast.Constant))
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Name(), slice=ast.Constant(value=str(name)))]
                ):
                    self.given.add(name)

    def _test(self, test: ast.expr) -> bool | None:
        """Return whether a comparison of the estimator or of a column holds, None where that is unknown."""
        match test:
            case ast.Compare(
                left=ast.Name(id="adv_estimator"), ops=[ast.Eq() | ast.In()], comparators=[right]
            ):
                named = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else [right]
                values = [self._text(element) for element in named]
                return self.name in values if all(values) else None
            case ast.Compare(left=ast.Constant(value=str(column)), ops=[ast.In()], comparators=[right]) if (
                "batch" in dotted(right.func if isinstance(right, ast.Call) else right)
            ):
                return None if self.columns is None else column in self.columns
        return None

    def _text(self, node: ast.expr) -> str:
        """Return a literal, or the value of a member of the (possibly imported) enumeration; otherwise ""."""
        return _constant(node) or self.members.get(".".join(dotted(node).split(".")[-2:]), "")


def _required(function: ast.FunctionDef) -> list[str]:
    spec = function.args
    return [argument.arg for argument in spec.args[: len(spec.args) - len(spec.defaults)]]


def _refusal(error: str, text: str, place: str) -> Refusal:
    return Refusal(error, text, place, "", (ESTIMATOR,))


def _methods(owner: ClassNode, definitions: Definitions) -> Iterator[FunctionNode]:
    for base in definitions.bases(owner):
        for part in base.node.body:
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield FunctionNode(part, base.module, owner=base)


def _columns(method: FunctionNode, definitions: Definitions) -> frozenset[str] | None:
    """Return all texts in a method that loads columns by name, and in functions it calls.

    The result is None where the method takes whole batches.
    """
    calls = [node for node in walk(method.node) if isinstance(node, ast.Call)]
    if all(word.arg != _LOADS for call in calls for word in call.keywords):
        return None
    names = (dotted(call.func) for call in calls)
    called = (definitions.in_module(method.module, name) for name in names if not name.startswith(_COMPUTES))
    functions = [method, *(function for function in called if isinstance(function, FunctionNode))]
    return frozenset(
        text for function in functions for node in walk(function.node) if (text := _constant(node))
    )


def _computing(function: FunctionNode, definitions: Definitions, deepest: int = 3) -> FunctionNode | None:
    """Return the function that looks up the estimator, below the one that computes advantages."""
    names = [dotted(node.func) for node in walk(function.node) if isinstance(node, ast.Call)]
    if any(name.rpartition(".")[2] == _LOOKS_UP for name in names):
        return function
    for name in names:
        found = definitions.in_module(function.module, name) if name.startswith(_COMPUTES) else UNCLEAR
        if isinstance(found, FunctionNode) and deepest:
            return _computing(found, definitions, deepest - 1)
    return None


def _constant(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
