"""What Ray does with the environment: which cluster a driver joins, and what it changes in that of a worker."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.fact_raylets import Raylet
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.py_evaluate import UNCLEAR
from verl_doctor.toolkit.py_source import dotted, parse, read, walk
from verl_doctor.toolkit.verl_environment import Given

RAY = "Ray"
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
# Where Ray writes the environment of a worker that it has started. Paths below its package.
_WRITERS = ("_private/worker.py", "_private/utils.py")
_LEFT = re.compile(r"\$\{[A-Z0-9_]+\}")


def address(asked: object, environ: Mapping[str, str], machine: Machine) -> str:
    """The address of the cluster that `ray.init(address=asked)` joins; "" when it starts one of its own.

    `get_ray_address_from_environment` in ray/_private/services.py: RAY_ADDRESS goes first, then what was asked for, then the
    file that the last `ray start` on this machine left. "auto" is returned when only that is known.
    """
    named = environ.get("RAY_ADDRESS") or (asked if isinstance(asked, str) else "")
    if named == "local":
        return ""
    if named and named != "auto":
        return named.removeprefix("ray://")
    temporary = environ.get("RAY_TMPDIR") or environ.get("TMPDIR") or "/tmp"  # noqa: S108 - Ray's own default
    return (machine.read(f"{temporary}/ray/ray_current_cluster") or "").strip() or named


def joined(at: str, raylets: tuple[Raylet, ...]) -> tuple[Raylet, ...]:
    """The raylets here that belong to the cluster at an address."""
    host, _, port = at.rpartition(":")
    return tuple(
        raylet
        for raylet in raylets
        if at in ("auto", raylet.cluster) or (host in _LOOPBACK and raylet.cluster.endswith(f":{port}"))
    )


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Of a raylet's environment what its workers inherit: not the allocator that Ray preloads for the raylet alone.

    It takes that away itself (src/ray/raylet/main.cc); before Ray 2.45 the mark had another name.
    """
    own = environ.get("RAY_LD_PRELOAD_ON_WORKERS") == "0" or environ.get("RAY_LD_PRELOAD") == "1"
    return {name: value for name, value in environ.items() if not (own and name == "LD_PRELOAD")}


def expanded(value: str, environ: Mapping[str, str]) -> str:
    """What Ray makes of `${NAME}` in a value of `env_vars` (`update_envs` in ray/_private/utils.py).

    It looks in the environment that the worker inherits; what is not set there becomes empty.
    """
    known = re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: environ.get(match[1] or match[2], match[0]), value)
    return _LEFT.sub("", known)


def for_workers(ray: Path) -> Iterator[Given]:
    """The variables that Ray's own code sets in a worker, as its sources tell. One that it sets in two ways is unclear."""
    found: dict[str, Given] = {}
    for one in _written(ray):
        other = found.get(one.name)
        found[one.name] = one if other is None else replace(one, value=UNCLEAR)
    yield from found.values()


def _written(ray: Path) -> Iterator[Given]:
    for name in _WRITERS:
        path = ray / name
        source = read(path)
        tree = parse(source, path) if isinstance(source, bytes) else None
        if isinstance(tree, ast.Module):
            for function in walk(tree):
                if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield from _set_in(function, path)


def _set_in(function: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> Iterator[Given]:
    for node in walk(function):
        match node:
            case ast.Assign(
                targets=[
                    ast.Subscript(
                        value=ast.Attribute(value=ast.Name(id="os"), attr="environ"),
                        slice=ast.Constant(value=str(name)),
                    )
                ],
                value=value,
            ):
                text = value.value if isinstance(value, ast.Constant) else UNCLEAR
                yield Given(name, text, (os.fspath(path), node.lineno), RAY, _asks_for(function, name))


def _asks_for(function: ast.AST, name: str) -> bool:
    """Whether a function looks at the variable before it sets it."""
    return any(
        isinstance(node, ast.Call)
        and dotted(node.func) in ("os.environ.get", "os.getenv")
        and any(isinstance(word, ast.Constant) and word.value == name for word in node.args)
        for node in walk(function)
    )


def may_override(ray: Path) -> bool:
    """Whether this Ray refuses a variable that a job and its driver both give, unless a switch says otherwise."""
    source = read(ray / "_private" / "worker.py")
    return isinstance(source, bytes) and b"RAY_OVERRIDE_JOB_RUNTIME_ENV" in source
