"""Reads paths from a Python file of `KEY = "path"` lines without running it.

People copy such files from an example for each cluster.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from verl_doctor.toolkit.sources.python.source import dotted, parse
from verl_doctor.toolkit.system import user_file
from verl_doctor.toolkit.system.secret import may_hold_secret, suggests_secret
from verl_doctor.toolkit.system.sites import is_elsewhere, is_placeholder
from verl_doctor.toolkit.target import UsageError

_LARGEST = 1_000_000  # bytes
_NOT_IN_ONE = (b"def ", b"class ", b"@")
_DEEPEST = 50  # nested expressions
NO_PATH = "it is not a path"
"""The reason why most lines of such a file are skipped."""

Value = str | PurePosixPath


class NotPlainError(Exception):
    """Why a value cannot be determined by reading, as the end of a sentence."""


@dataclass(frozen=True)
class Setting:
    """One assignment of the file.

    `path` is None when it is skipped, with the reason in `why`. A path may begin with `~` or `$NAME`.
    """

    name: str
    line: int
    path: str | None
    why: str = ""


def settings_in(file: Path) -> list[Setting]:
    """Return the assignments of a file, the last for each name.

    Raises UsageError when it cannot be parsed as Python.
    """
    content = user_file.read(file, _LARGEST)
    if content is None:
        raise UsageError(f"{file} is larger than {_LARGEST:,} bytes: it is not a file of paths")
    tree = parse(content, file)
    if not isinstance(tree, ast.Module):
        raise UsageError(
            f'{file} is not valid Python; it should contain lines such as MODEL = "/models/qwen"'
        )
    known: dict[str, Value] = {"__file__": str(file.absolute())}
    found: dict[str, Setting] = {}
    for node in tree.body:
        for name, value in _assignments(node):
            found.pop(name, None)
            found[name] = _setting(name, node.lineno, value, known)
    return list(found.values())


def names_of_paths(content: bytes) -> bytes | None:
    """Return the names in a file that only sets paths, which all clusters share. None for any other file."""
    if len(content) > _LARGEST or b"=" not in content or any(word in content for word in _NOT_IN_ONE):
        return None
    tree = parse(content, Path("paths.py"))
    if not isinstance(tree, ast.Module):
        return None
    assigned = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    others = [
        node
        for node in tree.body
        if node not in assigned and not isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    if not assigned or any(not isinstance(node, ast.Expr) for node in others):
        return None
    known: dict[str, Value] = {"__file__": "/paths.py"}
    settings = [
        _setting(name, node.lineno, value, known) for node in assigned for name, value in _assignments(node)
    ]
    paths = sum(setting.path is not None for setting in settings)
    return "\n".join(setting.name for setting in settings).encode() if 2 * paths > len(settings) else None


def _assignments(node: ast.stmt) -> list[tuple[str, ast.expr | str]]:
    """Return the names that a statement binds, each with the expression, or with why it cannot be read."""
    match node:
        case ast.Assign(targets=targets, value=value):
            return [(target.id, value) for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [(name, value)]
        case ast.AugAssign(target=ast.Name(id=name)):
            return [(name, "it is built in several steps")]
        case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
            names = {
                target.id: None
                for inner in ast.walk(node)
                if isinstance(inner, ast.Assign)
                for target in inner.targets
                if isinstance(target, ast.Name)
            }
            return [(name, "it is set under a condition") for name in names]
    return []


def _setting(name: str, line: int, value: ast.expr | str, known: dict[str, Value]) -> Setting:
    known.pop(name, None)
    if isinstance(value, str):
        return Setting(name, line, None, value)
    try:
        found = _value(value, known)
    except NotPlainError as reason:
        return Setting(name, line, None, str(reason))
    known[name] = found
    path = str(found)
    if suggests_secret(name) or may_hold_secret(path):
        return Setting(name, line, None, "it may be a secret")
    if "\n" in path or "\0" in path:
        return Setting(name, line, None, NO_PATH)
    like_a_path = isinstance(found, PurePosixPath) or "/" in path or path[:1] in ("~", "$", ".")
    if like_a_path or is_placeholder(path) or is_elsewhere(path):
        return Setting(name, line, path)
    return Setting(name, line, None, NO_PATH)


def _value(node: ast.expr, known: Mapping[str, Value], depth: int = 0) -> Value:
    if depth > _DEEPEST:
        raise NotPlainError("it is nested too deeply")

    def inner(part: ast.expr) -> Value:
        return _value(part, known, depth + 1)

    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=None):
            return ""
        case ast.Constant():
            raise NotPlainError(NO_PATH)
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Name(id=name):
            raise NotPlainError(f"it needs {name}, which is not defined before it")
        case ast.JoinedStr(values=parts):
            return "".join(str(inner(part)) for part in parts)
        case ast.FormattedValue(value=part, conversion=-1, format_spec=None):
            return inner(part)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _added(inner(left), inner(right))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _below(inner(left), inner(right))
        case ast.Attribute(value=part, attr="parent"):
            return _as_path(inner(part)).parent
        case ast.Subscript(value=part, slice=ast.Constant(value=str() as name)) if _is(part, "environ"):
            return f"${name}"
        case ast.Call(func=function, args=arguments, keywords=[]):
            return _called(function, arguments, inner)
        case ast.List() | ast.Tuple() | ast.Dict() | ast.Set():
            raise NotPlainError(NO_PATH)
    raise NotPlainError(f"`{_written(node)}` is not understood")


def _called(function: ast.expr, arguments: list[ast.expr], inner: Callable[[ast.expr], Value]) -> Value:
    name = dotted(function)
    last = name.rpartition(".")[2]
    if last in ("getenv", "get") and _reads_environment(name):
        if len(arguments) == 1 and isinstance(arguments[0], ast.Constant):
            return f"${arguments[0].value!s}"
        raise NotPlainError("it depends on the environment")
    if last == "str" and len(arguments) == 1:
        return str(inner(arguments[0]))
    if isinstance(function, ast.Attribute) and not _is_module(name):
        owner = inner(function.value)
        if function.attr in ("resolve", "absolute", "expanduser") and not arguments:
            return owner
        if function.attr == "as_posix" and not arguments:
            return str(owner)
        if function.attr == "joinpath":
            return _as_path(owner).joinpath(*(inner(argument) for argument in arguments))
        raise NotPlainError(f"{function.attr}() is not understood")
    values = [inner(argument) for argument in arguments]
    if last in ("Path", "PurePath", "PosixPath", "PurePosixPath"):
        return PurePosixPath(*values)
    if last in ("join", "joinpath") and values:
        return str(PurePosixPath(*values))
    if last in ("abspath", "realpath", "normpath", "expanduser", "expandvars", "fspath") and len(values) == 1:
        return str(values[0])
    if last == "dirname" and len(values) == 1:
        return str(PurePosixPath(values[0]).parent)
    raise NotPlainError(f"{name or 'what is called'}() is not understood")


def _is_module(name: str) -> bool:
    """Return whether a dotted name is a function of a module these files import, not a value's method."""
    return name.startswith(("os.", "pathlib.", "path.", "osp."))


def _reads_environment(name: str) -> bool:
    return name in ("os.getenv", "getenv", "os.environ.get", "environ.get")


def _is(node: ast.expr, name: str) -> bool:
    return dotted(node) in (name, f"os.{name}")


def _added(left: Value, right: Value) -> str:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    raise NotPlainError("a path is added to a text")


def _below(left: Value, right: Value) -> PurePosixPath:
    if isinstance(left, str) and isinstance(right, str):
        raise NotPlainError("a text is divided by another")
    return PurePosixPath(left, right)


def _as_path(value: Value) -> PurePosixPath:
    if isinstance(value, str):
        raise NotPlainError("a text is used as a path")
    return value


def _written(node: ast.expr) -> str:
    text = ast.unparse(node).replace("\n", " ")
    return text if len(text) <= 40 else f"{text[:37]}..."
