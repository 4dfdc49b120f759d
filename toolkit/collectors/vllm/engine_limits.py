"""The values that this vLLM accepts for an engine argument, and the setting from which verl passes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.engine_server import SERVER, handed_arguments
from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.sources.python.source import dotted, parsed

_FILES = (
    "config/cache.py",
    "config/scheduler.py",
    "config/model.py",
    "config/parallel.py",
    "config/load.py",
    "config/__init__.py",
    "config.py",
)
_RENAMED = {
    ("SchedulerConfig", "policy"): "scheduling_policy",
    ("CacheConfig", "cache_dtype"): "kv_cache_dtype",
}
_CLASSES = frozenset({"CacheConfig", "SchedulerConfig", "ModelConfig", "ParallelConfig", "LoadConfig"})
_BOUNDS = ("gt", "ge", "lt", "le")


@dataclass(frozen=True)
class EngineLimit:
    """The bounds of a number (`bounds`), or the `choices` of a text, of one engine argument.

    The keys of `bounds` are "gt", "ge", "lt" and "le".

    `is_table`: it takes a dictionary alone.
    """

    argument: str
    read_from: str
    bounds: Mapping[str, float] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    is_table: bool = False

    def refuses(self, value: object) -> str:
        """Describe what the argument accepts instead of this value; "" if the value is accepted."""
        if isinstance(value, bool):
            return ""
        if isinstance(value, (int, float)) and self.is_table:
            return "a dictionary"
        if isinstance(value, (int, float)):
            holds = {
                "gt": lambda n: value > n,
                "ge": lambda n: value >= n,
                "lt": lambda n: value < n,
                "le": lambda n: value <= n,
            }
            broken = any(not holds[name](bound) for name, bound in self.bounds.items())
            return (
                " and ".join(f"{_SIGNS[name]} {bound:g}" for name, bound in self.bounds.items())
                if broken
                else ""
            )
        if isinstance(value, str) and self.choices and value not in self.choices:
            return f"one of {', '.join(self.choices)}"
        return ""


_SIGNS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


@dataclass(frozen=True)
class EngineLimits:
    """`handed` are the keys below `rollout` from which verl's server takes engine arguments, by argument."""

    version: str
    limits: tuple[EngineLimit, ...] = ()
    handed: Mapping[str, str] = field(default_factory=dict)


@collector(timeout=10, kept=True)
def engine_limits(vllm: VllmTree, trees: VerlTrees) -> EngineLimits | Unknown:
    """Read the classes of vLLM's configuration, and the table in verl's server."""
    folder, server = Path(vllm.tree.folder), Path(trees.imported.folder, SERVER)
    files = [folder / name for name in _FILES]
    read_them = partial(_read, vllm.tree.version, files, server)
    return remembered(EngineLimits, vllm.tree.version, [*files, server], read_them)


def _read(version: str, files: list[Path], server: Path) -> EngineLimits:
    handed = dict(handed_arguments(server))
    found: dict[str, EngineLimit] = {}
    for path in files:
        for limit in _limits(path):
            found.setdefault(limit.argument, limit)
    return EngineLimits(version, tuple(found.values()), handed)


def _limits(path: Path) -> Iterator[EngineLimit]:
    tree = parsed(path)
    if tree is None:
        return
    aliases = {
        part.targets[0].id: part.value
        for part in tree.body
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name)
    }
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name not in _CLASSES:
            continue
        for part in node.body:
            match part:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                    argument = _RENAMED.get((node.name, name), name)
                    bounds = _bounds(value)
                    choices = tuple(_choices(annotation, aliases) or ())
                    is_table = _is_table(annotation)
                    if bounds or choices or is_table:
                        yield EngineLimit(argument, f"{path}:{part.lineno}", bounds, choices, is_table)


def _bounds(value: ast.expr | None) -> dict[str, float]:
    if not isinstance(value, ast.Call) or dotted(value.func) != "Field":
        return {}
    found = {}
    for word in value.keywords:
        if word.arg in _BOUNDS:
            number = word.value.operand if isinstance(word.value, ast.UnaryOp) else word.value
            if not isinstance(number, ast.Constant) or not isinstance(number.value, (int, float)):
                return {}
            found[word.arg] = float(-number.value if isinstance(word.value, ast.UnaryOp) else number.value)
    return found


def _is_table(annotation: ast.expr) -> bool:
    """Return whether a field takes dictionaries, and nothing else but None."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="InitVar" | "Optional"), slice=inner):
            return _is_table(inner)
        case ast.Subscript(value=ast.Name(id="dict" | "Dict")):
            return True
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _is_table(left)
    return False


def _choices(annotation: ast.expr, aliases: Mapping[str, ast.expr], depth: int = 0) -> list[str] | None:
    """Return the texts of a `Literal`, also through an alias; None if any text is accepted."""
    match annotation:
        case ast.Name(id=name) if name in aliases and depth < 4:
            return _choices(aliases[name], aliases, depth + 1)
        case ast.Constant(value=None):
            return []
        case ast.Subscript(value=target, slice=inner) if dotted(target).endswith("Literal"):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            found: list[str] = []
            for part in parts:
                more = [part.value] if isinstance(part, ast.Constant) else _choices(part, aliases, depth + 1)
                if more is None:
                    return None
                found += map(str, more)
            return found
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            sides = [_choices(side, aliases, depth) for side in (left, right)]
            return None if None in sides else [text for side in sides for text in side or ()]
        case ast.Attribute() if dotted(annotation) == "torch.dtype":
            return []  # never from a command line
    return None
