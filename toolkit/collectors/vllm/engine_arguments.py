"""The names that this vLLM accepts for its engine: fields of its argument classes, options of its command line, parameters of LLM."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse, parsed, read, statements, walk

SECTION = "actor_rollout_ref.rollout.engine_kwargs.vllm"  # what verl passes to vLLM
# Where vLLM 0.8 to 0.33 define them. All have the first; other files missing from a release are skipped.
_FILES = (
    "engine/arg_utils.py",
    "entrypoints/openai/cli_args.py",
    "entrypoints/launchers/cli_args.py",
    "entrypoints/cli/serve.py",
    "entrypoints/llm.py",
)
_CLASSES = frozenset({"EngineArgs", "AsyncEngineArgs", "FrontendArgs", "BaseFrontendArgs"})
_ROLLOUT = "workers/rollout/vllm_rollout"
_AS_COMMAND_LINE = re.compile(rb"\bparse_args\(")  # argparse refuses a value outside the choices
_HOPS = 4  # modules through which the name of a type is followed


@dataclass(frozen=True)
class EngineArguments:
    """`names` are accepted by this vLLM, `by_verl` are further names that verl's own rollout takes out of `engine_kwargs`.

    `choices` are the values of arguments of which vLLM's command line accepts no others; empty if this verl does not use it.
    """

    version: str
    names: tuple[str, ...]
    read_from: str
    by_verl: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@collector(kept=True)
def engine_arguments(
    configuration: Configuration, vllm: VllmTree, trees: VerlTrees | Unknown
) -> EngineArguments | Unknown:
    """Read them from both sources, which takes longer than most facts, for a job that passes any."""
    if not any(word.key.startswith(SECTION) for word in configuration.overrides):
        return Absent("the job passes no engine arguments to vLLM")
    folder = Path(vllm.tree.folder)
    names: set[str] = set()
    rollout = None if isinstance(trees, Unknown) else Path(trees.imported.folder) / _ROLLOUT
    choices: dict[str, tuple[str, ...]] = {}
    for name in _FILES:
        source = read(folder / name)
        tree = parse(source, folder / name) if isinstance(source, bytes) else source
        if not isinstance(tree, Unreadable):
            names.update(_names(tree))
            if name == _FILES[0] and rollout and _is_command_line(rollout):
                choices.update(_choices(tree, folder))
        if name == _FILES[0] and "model" not in names:
            return Unknown(f"{folder / name} has no readable class EngineArgs")
    by_verl = tuple(sorted(set(_taken_by_verl(rollout)))) if rollout else ()
    return EngineArguments(vllm.tree.version, tuple(sorted(names)), str(folder / _FILES[0]), by_verl, choices)


def _names(tree: ast.Module) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in _CLASSES:
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id
        elif isinstance(node, ast.ClassDef) and node.name == "LLM":
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    _self, *arguments = (*statement.args.args, *statement.args.kwonlyargs)
                    yield from (argument.arg for argument in arguments)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            yield node.value[2:].replace("-", "_")


def _taken_by_verl(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        source = read(path)
        if isinstance(source, bytes):
            found = re.findall(rb"engine_kwargs\.pop\(\s*[\"'](\w+)", source)
            yield from (name.decode() for name in found)


def _is_command_line(rollout: Path) -> bool:
    """Return whether verl's server passes the arguments through vLLM's command line."""
    source = read(rollout / "vllm_async_server.py")
    return isinstance(source, bytes) and _AS_COMMAND_LINE.search(source) is not None


def _choices(tree: ast.Module, folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the fields of EngineArgs that take nothing but certain texts, with these."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "EngineArgs":
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    texts = _texts(statement.annotation, tree, folder)
                    if texts:
                        yield statement.target.id, texts


def _texts(annotation: ast.expr, tree: ast.Module, folder: Path, hops: int = _HOPS) -> tuple[str, ...] | None:
    """Return the texts of a `Literal`, also by its name, in `Optional` or beside None; None for any other type."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _texts(left, tree, folder, hops)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return _texts(inner, tree, folder, hops)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=entries)):
            texts = [entry.value for entry in entries if isinstance(entry, ast.Constant)]
            only = len(texts) == len(entries) and all(isinstance(text, str) for text in texts)
            return tuple(map(str, texts)) if only else None
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Constant(value=str(text))):
            return (text,)
        case ast.Name(id=name) if hops:
            return _named(name, tree, folder, hops - 1)
    return None


def _named(name: str, tree: ast.Module, folder: Path, hops: int) -> tuple[str, ...] | None:
    """Return the texts of the `Literal` that a name of this module stands for."""
    for node in statements(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return _texts(value, tree, folder, hops)
            case ast.ImportFrom(module=str(module), names=names, level=0) if module.startswith("vllm."):
                original = next((each.name for each in names if (each.asname or each.name) == name), None)
                if original is None:
                    continue
                place = folder.joinpath(*module.split(".")[1:])
                for path in (place.with_suffix(".py"), place / "__init__.py"):
                    if (other := parsed(path)) is not None:
                        return _named(original, other, folder, hops)
                return None
    return None
