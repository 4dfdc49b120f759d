"""Shared by the fixes that make verl's engine process join the Ray of the actor that started it.

The engine process also waits for its workers there.

The actor puts the address of its own Ray into RAY_ADDRESS where it gives the engine its `instance_id`, as
vLLM does in some cases. The engine process joins that Ray, in the namespace of its workers, looks for them
for about six seconds, and then reports which cluster and namespace it searched, and what exists there. It
never starts a Ray.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.engine_lookup import (
    ADDRESS,
    EngineLookup,
    address_statement,
    engine_lookups,
    identified,
)
from verl_doctor.toolkit.sources.python.source import dotted, statements, text_of, walk

UPSTREAM = "verl-project/verl#1138"
NEEDED = (
    "verl 0.4.0 to 0.5.0 and copies of them, whose engine process connects to Ray itself; gone in verl 0.6.0"
)
RESTART = "running Ray workers, which keep the old code"

RECORD = "VERL_ENGINE_RECORD_DIR"
"""The folder for the patched engine process's `<instance_id>.log`: where it searched, and what it found."""

# Arguments for starting a Ray, which are invalid when joining a cluster (ray.init in ray/_private/worker.py).
_FOR_A_NEW_RAY = frozenset(
    {"num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "storage", "_system_config"}
    | {"_enable_object_reconstruction", "_node_name", "address", "namespace", "ignore_reinit_error"}
)
_OWN_NAMES = frozenset(
    {
        "actor_prefix",
        "expected_actors",
        "pause",
        "all_actors",
        "elsewhere",
        "session",
        "seen",
        "record",
        "error",
    }
    | {"os", "time"}
)

_JOIN = """\
try:
    ray.init({arguments})
except Exception as error:
    raise RuntimeError(
        f"instance_id: {{{identity}}} cannot join the Ray cluster at {{os.environ.get('{address}', 'auto')}} "
        f"to look into namespace {{{namespace}}}, and starts none of its own: {{error}}"
    ) from error"""

_WAIT = """\
actor_prefix, expected_actors = {prefix}, {wanted}
for pause in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
    if len({names}) >= expected_actors:
        break
    time.sleep(pause)
    {names} = {listing}
if os.environ.get("{record}") or len({names}) != expected_actors:
    all_actors = ray.util.list_named_actors(all_namespaces=True)
    found_in = {{actor["namespace"] for actor in all_actors if actor["name"].startswith(actor_prefix)}}
    elsewhere = sorted(found_in - {{{namespace}}})
    session = getattr(ray._private.worker._global_node, "session_name", "of an unknown session")
    seen = (
        f"instance_id: {{{identity}}} has {{len({names})}} actors of {{expected_actors}} expected. Asked for "
        f"{{actor_prefix}}* in namespace {{{namespace}}} of the Ray cluster at "
        f"{{ray.get_runtime_context().gcs_address}} ({{session}}): {{{names}}}. In all, it has "
        f"{{len(all_actors)}} named actors, and such ones in {{elsewhere or 'no other'}} namespace."
    )
    if os.environ.get("{record}"):
        with open(os.path.join(os.environ["{record}"], {identity}.replace("/", "_") + ".log"), "a") as record:
            print(seen, file=record)
    if len({names}) != expected_actors:
        raise RuntimeError(
            seen + " Let the trainer and the rollout use one namespace."
            if elsewhere
            else seen + " The workers have ended, or are in another cluster: see their logs."
        )"""


def pass_ray_address(finding: Finding, sources: SourceFiles, comment: str) -> list[Change] | Refusal:
    """Return the edit of the file that a finding names. The edited lines end in this comment."""
    return edited_file(finding, sources, lambda path, before: repaired(SourceText(before, path), comment))


def repaired(source: SourceText, comment: str) -> bytes:
    """Edit the source, then read it again to check the result.

    It must pass on the address, and call no `ray.init` without an address or a namespace.

    Raises CannotEdit for any unknown form.
    """
    if address_statement(source.tree):
        raise CannotEdit(f"{source.path}: the address is already passed on")
    after = source.edited(_edits(source), comment)
    tree = SourceText(after, source.path).tree
    left = [
        engine_lookup.function.lineno
        for engine_lookup in engine_lookups(tree)
        if None in (engine_lookup.given("address"), engine_lookup.given("namespace"))
    ]
    if address_statement(tree) is None or left:
        raise CannotEdit(f"{source.path}: the edited source would still connect without a fixed address")
    return after


def _edits(source: SourceText) -> Iterator[Edit]:
    """Yield one edit for each place of the parent, and two for each function that looks for actors."""
    lookups = list(engine_lookups(source.tree))
    parents = [
        statement
        for statement in identified(source.tree)
        if not any(statement in walk(each.function) for each in lookups)
    ]
    if not lookups:
        raise CannotEdit(f"{source.path}: no function calls ray.init and picks named actors by their prefix")
    if not parents:
        raise CannotEdit(f"{source.path}: it is unclear where the engine gets its instance_id")
    for parent in parents:
        _refuse_unless_alone(source, parent)
        _refuse_shadowed(source, parent, frozenset({"os"}))
        passing = f'{_imports(source, "os")}os.environ["{ADDRESS}"] = ray.get_runtime_context().gcs_address\n'
        yield Edit(source.start(parent), source.start(parent), source.indented(passing, parent))
    for lookup in lookups:
        _refuse_shadowed(source, lookup.assigned, _OWN_NAMES)
        yield _joins(source, lookup)
        yield _waits(source, lookup)


def _imports(source: SourceText, *names: str) -> str:
    """Return the lines that import these modules locally, unless the file imports them at its top."""
    imported = {
        alias.asname or alias.name
        for node in source.tree.body
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return "".join(f"import {name}\n" for name in names if name not in imported)


def _joins(source: SourceText, lookup: EngineLookup) -> Edit:
    statement = _connecting(source, lookup)
    _refuse_unless_alone(source, statement)
    join = _JOIN.format(
        arguments=", ".join(_arguments(source, lookup)),
        identity=_identity(source, lookup),
        namespace=_namespace(source, lookup),
        address=ADDRESS,
    )
    return _replace(source, statement, _imports(source, "os", "time") + join)


def _waits(source: SourceText, lookup: EngineLookup) -> Edit:
    if lookup.expected is None or lookup.wanted is None:
        raise _no(
            source, lookup.assigned, f"no `assert len({lookup.names}) == ...` states how many are expected"
        )
    _refuse_unless_alone(source, lookup.expected)
    if lookup.expected.lineno < lookup.assigned.lineno or lookup.assigned.lineno < lookup.inits[-1].lineno:
        raise _no(
            source, lookup.expected, "it does not connect, list the actors and count them, in this order"
        )
    between = [
        node
        for node in statements(lookup.function)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        and lookup.assigned.lineno < node.lineno < lookup.expected.lineno
        and any(isinstance(part, ast.Name) and part.id == lookup.names for part in walk(node))
    ]
    if between:
        raise _no(source, between[0], f"{lookup.names} changes before it is counted")
    return _replace(
        source,
        lookup.expected,
        _WAIT.format(
            prefix=ast.unparse(lookup.prefix),
            wanted=ast.unparse(lookup.wanted),
            names=lookup.names,
            listing=ast.unparse(lookup.listing),
            identity=_identity(source, lookup),
            namespace=_namespace(source, lookup),
            record=RECORD,
        ),
    )


def _replace(source: SourceText, statement: ast.stmt, text: str) -> Edit:
    return Edit(source.start(statement), source.end(statement), source.indented(text, statement))


def _connecting(source: SourceText, lookup: EngineLookup) -> ast.stmt:
    """Return the statement that connects: a plain call, or a `try` whose branches do nothing else."""
    for node in statements(lookup.function):
        if (
            isinstance(node, ast.Try)
            and _is_about_connecting(node)
            and all(call in walk(node) for call in lookup.inits)
        ):
            return node
    if len(lookup.inits) > 1:
        raise _no(source, lookup.inits[1], "ray.init is called more than once")
    for node in statements(lookup.function):
        if isinstance(node, (ast.Expr, ast.Assign)) and node.value is lookup.inits[0]:
            if isinstance(node, ast.Assign):
                raise _no(source, node, "the result of ray.init is used")
            return node
    raise _no(source, lookup.inits[0], "ray.init is part of a larger expression")


def _is_about_connecting(node: ast.Try) -> bool:
    """Return whether a `try` only connects to Ray, in one way or another, and reports it."""
    inner = [*node.body, *node.orelse, *node.finalbody]
    inner += [statement for handler in node.handlers for statement in handler.body]
    calls = ("ray.init", "ray.shutdown", "print", "logger.", "logging.")
    return all(
        isinstance(part, (ast.Pass, ast.Raise))
        or (
            isinstance(part, ast.Expr)
            and isinstance(part.value, ast.Call)
            and dotted(part.value.func).startswith(calls)
        )
        for part in inner
    )


def _arguments(source: SourceText, lookup: EngineLookup) -> Iterator[str]:
    """Yield the new `ray.init`'s arguments: address, namespace, and old ones valid for joining a cluster."""
    if any(keyword.arg is None for keyword in lookup.inits[0].keywords):
        raise _no(source, lookup.inits[0], "it is called with **")
    yield f'address=os.environ.get("{ADDRESS}") or "auto"'
    yield f"namespace={_namespace(source, lookup)}"
    yield "ignore_reinit_error=True"
    for keyword in lookup.inits[0].keywords:
        if keyword.arg not in _FOR_A_NEW_RAY:
            yield f"{keyword.arg}={ast.unparse(keyword.value)}"


def _namespace(source: SourceText, lookup: EngineLookup) -> str:
    """Return the function's own name for the namespace in which it looks, or should look."""
    given = lookup.given("namespace")
    if given is not None and dotted(given):
        return dotted(given)
    bound = {
        part.id
        for part in walk(lookup.function)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    if "namespace" in bound:
        return "namespace"
    raise _no(source, lookup.inits[0], "it has no name for the namespace of the workers")


def _identity(source: SourceText, lookup: EngineLookup) -> str:
    """Return the expression with which the function reads its `instance_id`."""
    for part in walk(lookup.function):
        if isinstance(part, ast.Attribute) and part.attr == "instance_id" and dotted(part):
            return dotted(part)
    raise _no(source, lookup.function, "it does not read an instance_id")


def _refuse_unless_alone(source: SourceText, statement: ast.stmt) -> None:
    if not source.is_alone(statement):
        raise _no(source, statement, "there is other code on the same line")


def _refuse_shadowed(source: SourceText, inside: ast.stmt, names: frozenset[str]) -> None:
    """Raise CannotEdit if a name that the new code uses means something else in this function.

    The function is the one around the statement.
    """
    functions = [
        node for node in statements(source.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    around = [node for node in functions if any(inside is part for part in walk(node))]
    for node in walk(around[-1]) if around else ():
        bound = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound = node.id
        elif isinstance(node, ast.arg):
            bound = node.arg
        elif isinstance(node, ast.alias):
            bound = (node.asname or node.name).split(".")[0]
        if bound in names:
            raise _no(source, inside, f"{bound} means something else in {around[-1].name}")


def _no(source: SourceText, node: ast.stmt | ast.expr, why: str) -> CannotEdit:
    return CannotEdit(f"{source.path}:{node.lineno}: {text_of(node, 60)}: {why}")
