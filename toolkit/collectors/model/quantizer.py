"""The packages without which the installed transformers refuses to load the model's quantized weights."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import loads_with_transformers
from verl_doctor.toolkit.collectors.installed.import_path import is_on_path
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.model.model import BadFile, Model, read_json
from verl_doctor.toolkit.collectors.model.support import transformers_folder
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import dotted, parsed
from verl_doctor.toolkit.target import Target

_TABLE = "quantizers/auto.py"
_MAPPING = "AUTO_QUANTIZER_MAPPING"
_CHECKS = "validate_environment"
_SECTIONS = ("actor_rollout_ref.model.override_config", "model.override_config")
_AVAILABLE = re.compile(r"is_(\w+)_available")
# Whose name in transformers is that of the module.
_PACKAGES = frozenset(
    {"accelerate", "aqlm", "bitsandbytes", "compressed_tensors", "gptqmodel", "hqq", "optimum"}
)


@dataclass(frozen=True)
class Quantizer:
    """How the weights of the model in `folder` are quantized, and the packages that are `missing`.

    With them comes the place where transformers requires the first of these packages.
    """

    folder: str
    method: str
    missing: tuple[str, ...] = ()
    read_from: str = ""


@collector(kept=True)
def quantizer(
    model: Model, target: Target, interpreter: Interpreter, configuration: Configuration
) -> Quantizer | Unknown:
    """Read what the quantizer of the model's method requires of its environment."""
    config = read_json(Path(model.folder, "config.json"))
    given = {} if isinstance(config, BadFile) else config.get("quantization_config")
    method = given.get("quant_method") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(method, str):
        return Absent("the model's weights are not quantized")
    sections = [configuration.get(key) for key in _SECTIONS]
    if any(isinstance(section, dict) and "quantization_config" in section for section in sections):
        return Absent("the job replaces the model's quantization_config")
    if model.own_code or not loads_with_transformers(configuration):
        return Absent("the model may be loaded by other code than that of transformers")
    root = transformers_folder(target, interpreter)
    if root is None or not is_on_path("torch", interpreter.sys_path):
        return Absent("transformers is not installed in this environment")
    if method == "bitsandbytes":
        method += "_8bit" if given.get("load_in_8bit") else "_4bit"
    required = list(_required(root, method))
    missing = [(name, where) for name, where in required if not is_on_path(name, interpreter.sys_path)]
    return Quantizer(
        model.folder, method, tuple(name for name, _ in missing), missing[0][1] if missing else ""
    )


def _required(root: Path, method: str) -> Iterator[tuple[str, str]]:
    """Yield each package without which a quantizer raises, with the place as "path:line"."""
    tree = parsed(root / _TABLE) if os.path.isfile(root / _TABLE) else None
    name = next((name for node in (tree.body if tree else ()) for name in _named(node, method)), "")
    for node in tree.body if tree and name else ():
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 1
            and name in {alias.name for alias in node.names}
        ):
            path = (root / _TABLE).with_name(f"{node.module}.py")
            yield from ((package, f"{path}:{line}") for package, line in _of_class(path, name))


def _named(node: ast.stmt, method: str) -> Iterator[str]:
    """Yield the class that the table has for a method."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys, values=values)) if (
            name == _MAPPING
        ):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value == method:
                    yield dotted(value)


def _of_class(path: Path, name: str) -> Iterator[tuple[str, int]]:
    """Yield the packages that a class requires, with the line, up to the first condition of another kind."""
    tree = parsed(path) if os.path.isfile(path) else None
    owners = (
        node for node in (tree.body if tree else ()) if isinstance(node, ast.ClassDef) and node.name == name
    )
    methods = (
        part
        for owner in owners
        for part in owner.body
        if isinstance(part, ast.FunctionDef) and part.name == _CHECKS
    )
    for method in methods:
        for statement in method.body:
            match statement:
                case ast.If(
                    test=ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=function, args=[])),
                    body=[ast.Raise(exc=ast.Call(func=ast.Name(id="ImportError")))],
                    orelse=[],
                ) if match := _AVAILABLE.fullmatch(dotted(function)):
                    if match[1] in _PACKAGES:
                        yield match[1], statement.lineno
                case ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    return
