"""How the engine process of verl's async rollout reaches the Ray that holds its workers.

verl 0.4 and 0.5 start vLLM's engine as a child of a Ray actor, and the child calls `ray.init` and looks up
named actors. Which Ray it joins depends on verl's source, on vLLM, which puts the actor's own address into
RAY_ADDRESS in some cases (vllm-project/vllm#15324), and on the actor's environment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.engine_lookup import (
    ADDRESS,
    EngineLookup,
    address_statement,
    engine_lookups,
    identified,
)
from verl_doctor.toolkit.sources.python.source import (
    Unreadable,
    dotted,
    parse,
    read,
    statements,
    text_of,
    walk,
)

_ROLLOUTS = "workers"  # below verl's top package, in every release that has an engine process
_WORD = b"list_named_actors"
# Where vLLM chooses how to start its processes: 0.8, 0.9 to 0.11, and later.
_VLLM = ("utils.py", "utils/__init__.py", "utils/system_utils.py")


@dataclass(frozen=True)
class Choice:
    """An environment variable that must have a value; `default` applies if it is not set."""

    variable: str
    value: str
    default: str = ""


@dataclass(frozen=True)
class EngineRay:
    """The function in verl's `path` that calls `ray.init` in `line`, in the engine process.

    It also looks up actors whose names begin with `prefix`.

    `address` and `namespace` are the source text of its arguments to `ray.init`, "" for none. `chosen_by`
    must hold for this engine process to be used at all; `unclear` is a condition for it that could not be
    read. `address_given`: verl puts the address of the parent's own Ray into RAY_ADDRESS. `also` are the
    lines in which the function counts the actors found, and in which the parent gives it the name of its
    workers. vLLM does so in `vllm` unless one of `vllm_unless` holds before, or a condition of `vllm_after`;
    `vllm` is "" if it never does, and `vllm_unknown` is why it could not be read.
    """

    path: str
    line: int
    prefix: str
    address: str = ""
    namespace: str = ""
    address_given: bool = False
    also: tuple[int, ...] = ()
    chosen_by: tuple[Choice, ...] = ()
    unclear: str = ""
    vllm: str = ""
    vllm_unless: tuple[Choice, ...] = ()
    vllm_after: tuple[str, ...] = ()
    vllm_unknown: str = ""


@collector(kept=True)
def engine_ray(trees: VerlTrees, vllm: VllmTree | Unknown) -> EngineRay | Unknown:
    """Read verl's rollouts, and where vLLM chooses how to start processes."""
    verl = Path(trees.imported.folder, _ROLLOUTS)
    library = None if isinstance(vllm, Unknown) else Path(vllm.tree.folder)
    files = [library / name for name in _VLLM] if library else []
    why = vllm.reason if isinstance(vllm, Unknown) else ""
    return remembered(EngineRay, why, [verl, *files], partial(_read, verl, files, why))


def _read(verl: Path, vllm: list[Path], why: str) -> EngineRay | Unknown:
    for path in sorted(verl.rglob("*.py")):
        source = read(path)
        if isinstance(source, bytes) and _WORD in source:
            tree = parse(source, path)
            if isinstance(tree, Unreadable):
                return Unknown(tree.reason)
            for lookup in engine_lookups(tree):
                return _with_vllm(_of_verl(path, tree, lookup), vllm, why)
    return Absent(f"no engine process of {verl.parent} looks for its workers in Ray")


def _of_verl(path: Path, tree: ast.Module, lookup: EngineLookup) -> EngineRay:
    init = lookup.inits[0]
    address = init.args[0] if init.args else lookup.given("address")
    namespace = lookup.given("namespace")
    conditions = list(_conditions(tree, lookup))
    choices = [choice for condition in conditions if (choice := _choice(condition, _names(tree)))]
    unread = [condition for condition in conditions if _choice(condition, _names(tree)) is None]
    return EngineRay(
        str(path),
        init.lineno,
        lookup.kind,
        "" if address is None else text_of(address),
        "" if namespace is None else text_of(namespace),
        address_given=address_statement(tree) is not None,
        also=tuple(
            statement.lineno for statement in (lookup.expected, *identified(tree)) if statement is not None
        ),
        chosen_by=tuple(choices),
        unclear=text_of(unread[0]) if unread else "",
    )


def _with_vllm(found: EngineRay, files: list[Path], why: str) -> EngineRay:
    for path in files:
        source = read(path)
        tree = parse(source, path) if isinstance(source, bytes) and ADDRESS.encode() in source else None
        statement = address_statement(tree) if isinstance(tree, ast.Module) else None
        if isinstance(tree, ast.Module) and statement is not None:
            unless, after = _obstacles(tree, statement)
            return replace(found, vllm=str(path), vllm_unless=unless, vllm_after=after)
    return replace(found, vllm_unknown=why)


# --- which executor is used


def _conditions(tree: ast.Module, lookup: EngineLookup) -> Iterator[ast.expr]:
    """Yield the conditions for passing vLLM the executor whose process looks up actors."""
    for name in _executors(tree, lookup):
        for use, above in _uses(tree, name):
            for inner, around in zip((use, *above), above, strict=False):
                if isinstance(around, ast.IfExp) and inner is around.body:
                    yield around.test
                elif isinstance(around, ast.IfExp) and inner is around.orelse:
                    yield ast.UnaryOp(ast.Not(), around.test)
                elif isinstance(around, ast.If) and inner in around.body:
                    yield around.test
            return


def _executors(tree: ast.Module, lookup: EngineLookup) -> Iterator[str]:
    """Yield the classes whose engine process runs the function: those around it, or executors calling it."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            calls = (dotted(part.func) for part in walk(node) if isinstance(part, ast.Call))
            derived = any(dotted(base).endswith("Executor") for base in node.bases)
            if lookup.function in node.body or (derived and lookup.function.name in calls):
                yield node.name


def _uses(node: ast.AST, name: str, *above: ast.AST) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Yield where a class is named, except in comparisons, and the enclosing nodes, innermost first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and child.id == name and not isinstance(node, ast.Compare):
            yield child, (node, *above)
        yield from _uses(child, name, node, *above)


def _names(tree: ast.Module) -> Mapping[str, tuple[str, str]]:
    """Return names assigned from an environment variable: the variable, and its default."""
    found = {}
    for node in statements(tree):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and (variable := _variable(node.value, {}))
        ):
            found[dotted(node.targets[0])] = variable
    return found


def _choice(condition: ast.expr, names: Mapping[str, tuple[str, str]]) -> Choice | None:
    """Parse `os.environ.get("NAME", "default") == "value"`, or a comparison of a name assigned from it."""
    match condition:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=str(value))]):
            variable = _variable(left, names)
            return Choice(variable[0], value, variable[1]) if variable else None
    return None


def _variable(node: ast.expr, names: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    match node:
        case ast.Call(func=func, args=[ast.Constant(value=str(name)), *rest]) if dotted(func) in (
            "os.environ.get",
            "os.getenv",
        ):
            default = rest[0].value if rest and isinstance(rest[0], ast.Constant) else ""
            return name, default if isinstance(default, str) else ""
    return names.get(dotted(node)) if dotted(node) else None


# --- whether vLLM passes the address


def _obstacles(tree: ast.Module, statement: ast.stmt) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
    """Return what keeps vLLM's function from reaching a statement.

    These are variables that make it return early, and earlier branches.
    """
    unless: list[Choice] = []
    after: list[str] = []
    for function in statements(tree):
        if isinstance(function, ast.FunctionDef) and any(part is statement for part in statements(function)):
            for node in statements(function):
                if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
                    choice = _choice(node.test, {})
                    unless += [choice] if choice else []
                elif isinstance(node, ast.If) and _is_below(statement, node.orelse):
                    after.append(text_of(node.test))
    return tuple(unless), tuple(after)


def _is_below(statement: ast.stmt, block: list[ast.stmt]) -> bool:
    return any(part is statement for other in block for part in statements(other))
