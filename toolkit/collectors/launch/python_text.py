"""The program of verl that a Python text in a script starts.

The text is `python - <<EOF` with runpy, or `python -c` with verl's main.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from verl_doctor.toolkit.sources.python.source import dotted, imported_names, whole_name
from verl_doctor.toolkit.sources.shell.found import Argument

_TRAINERS = "verl."
_ARGUMENTS = "sys.argv"


def started(
    text: str, given: Sequence[Argument], first: Argument
) -> tuple[str, tuple[Argument, ...], str] | None:
    """Return the module that the text starts, its words and the names in the text.

    The names are written as if each was called. The result is None if the text starts no module.

    `first` is the place of the text's first line.
    """
    try:
        return _started(ast.parse(text), given, first)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _started(
    tree: ast.Module, given: Sequence[Argument], first: Argument
) -> tuple[str, tuple[Argument, ...], str] | None:
    module = next(_modules(tree), None)
    if module is None:
        return None
    return module, tuple(_changed(tree, given, first)), "".join(f"{name}(" for name in _names(tree))


def _modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of verl that are run: by `runpy.run_module`, or by calling their `main`."""
    imported = imported_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = whole_name(node.func, imported)
        argument = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        if called == "runpy.run_module" and isinstance(argument, str) and argument.startswith(_TRAINERS):
            yield argument
        elif called.startswith(_TRAINERS) and called.endswith(".main"):
            yield called.removesuffix(".main")


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def _changed(tree: ast.Module, given: Sequence[Argument], first: Argument) -> list[Argument]:
    """The words that the program gets if the text sets its arguments at its top.

    The result is an unknown word if that cannot be determined.
    """
    words = list(given)
    for node in tree.body:
        if "argv" not in ast.unparse(node):  # also under another name, and in `setattr(sys, "argv", ...)`
            continue
        texts = node.value if isinstance(node, (ast.Assign, ast.AugAssign)) else None
        elements = texts.elts if isinstance(texts, (ast.List, ast.Tuple)) else None
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        known = elements is not None and all(isinstance(part, ast.Constant) for part in elements)
        if not known or target is None or dotted(target) != _ARGUMENTS:
            return [replace(first, text=None, written=_ARGUMENTS)]
        added = [
            replace(first, text=str(part.value), written=str(part.value), line=first.line + part.lineno - 1)
            for part in elements or ()
            if isinstance(part, ast.Constant)
        ]
        words = added[1:] if isinstance(node, ast.Assign) else [*words, *added]
    return words
