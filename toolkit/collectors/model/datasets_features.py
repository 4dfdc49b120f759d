"""The feature types that the installed package `datasets` can read back from a file."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import parse_file, statements

_FEATURES = "datasets/features/features.py"
_TABLE = "_FEATURE_TYPES"


@dataclass(frozen=True)
class DatasetsFeatures:
    """The names allowed as `_type` in a footer, and what is installed."""

    version: str
    names: tuple[str, ...]
    read_from: str


@collector(kept=True)
def datasets_features(interpreter: Interpreter, packages: Packages | Unknown) -> DatasetsFeatures | Unknown:
    """Read the table of feature types, and the classes next to it: `generate_from_dict` searches both."""
    paths = (Path(entry, _FEATURES) for entry in interpreter.sys_path)
    path = next((path for path in paths if os.path.isfile(path)), None)
    if path is None:
        return Absent("the package datasets is not installed in this environment")
    installed = None if isinstance(packages, Unknown) else packages.get("datasets")
    version = installed.version if installed is not None else ""
    return remembered(DatasetsFeatures, version, [path], partial(_read, path, version))


def _read(path: Path, version: str) -> DatasetsFeatures | Unknown:
    tree = parse_file(path)
    if not isinstance(tree, ast.Module):
        return Unknown(tree.reason)
    names = tuple(dict.fromkeys(_names(tree)))
    if not names:
        return Unknown(f"{path} contains no table of feature types that can be read")
    return DatasetsFeatures(version, names, str(path))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in statements(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys))
            ) if name == _TABLE:
                for key in keys:
                    match key:
                        case (
                            ast.Constant(value=str(text))
                            | ast.Attribute(value=ast.Name(id=text), attr="__name__")
                        ):
                            yield text
            case ast.ClassDef(name=name):
                yield name
