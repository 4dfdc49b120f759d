"""Whether a tool's schema has the fields and types that verl's classes demand in their annotations."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.sources.python.source import dotted, parsed

_FILE = "tools/schemas.py"
_SCHEMA = "OpenAIFunctionToolSchema"
_BASE = "BaseModel"
_TITLES = ((str, "a text"), (list, "a list"), (dict, "a dictionary"))


def fault(schema: Any, verl: Path) -> str:
    """Return what verl's class refuses about a tool's schema; "" for nothing.

    An example is "function.parameters.required is a text, not a list".
    """
    tree = parsed(verl / _FILE)
    classes = {node.name: node for node in (tree.body if tree else ()) if isinstance(node, ast.ClassDef)}
    return _of_class(schema, _SCHEMA, classes, "tool_schema") if _SCHEMA in classes else ""


def _of_class(value: Any, name: str, classes: Mapping[str, ast.ClassDef], at: str) -> str:
    node = classes[name]
    if [dotted(base).rpartition(".")[2] for base in node.bases] != [_BASE]:
        return ""
    if not isinstance(value, dict):
        return _other(value, dict, at)
    for part in node.body:
        match part:
            case ast.AnnAssign(target=ast.Name(id=field), annotation=annotation, value=default):
                if field in value:
                    if found := _refused(value[field], annotation, classes, f"{at}.{field}"):
                        return found
                elif _is_required(default):
                    return f"{at} has no {field}"
    return ""


def _is_required(default: ast.expr | None) -> bool:
    """Return whether a field has no default. A call may name it otherwise."""
    return default is None or (
        isinstance(default, ast.Call)
        and dotted(default.func) == "Field"
        and not default.keywords
        and [part.value for part in default.args if isinstance(part, ast.Constant)] == [...]
    )


def _refused(value: Any, annotation: ast.expr, classes: Mapping[str, ast.ClassDef], at: str) -> str:
    """Return what is wrong with a value by an annotation; "" for nothing, and for what is not known."""
    if isinstance(value, str) and "${" in value:
        return ""  # OmegaConf fills it in
    match annotation:
        case ast.Name(id="str"):
            return "" if isinstance(value, str) else _other(value, str, at)
        case ast.Name(id=name) if name in classes:
            return _of_class(value, name, classes, at)
        case ast.Constant(value=None):
            return "" if value is None else _other(value, type(None), at)
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            if not isinstance(value, list):
                return _other(value, list, at)
            found = (
                _refused(element, inner, classes, f"{at}[{place}]") for place, element in enumerate(value)
            )
            return next(filter(None, found), "")
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
            if not isinstance(value, dict):
                return _other(value, dict, at)
            found = (_refused(element, inner, classes, f"{at}.{name}") for name, element in value.items())
            return next(filter(None, found), "")
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            first, second = _refused(value, left, classes, at), _refused(value, right, classes, at)
            return first if first and second else ""
    return ""


def _other(value: Any, wanted: type, at: str) -> str:
    shown = "null" if value is None else _title(type(value)) or str(value)
    return f"{at} is {shown}, not {_title(wanted) or 'null'}"


def _title(kind: type) -> str:
    return next((title for known, title in _TITLES if kind is known), "")
