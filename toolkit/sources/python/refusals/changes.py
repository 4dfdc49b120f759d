"""What followed code changes in place: names, fields of objects, configuration parts, and containers."""

from __future__ import annotations

import ast
from typing import Any

from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.settings import Settings
from verl_doctor.toolkit.sources.python.refusals.values import Frame, Made, Section, forget_all

_METHODS = frozenset(
    {
        "append",
        "extend",
        "insert",
        "remove",
        "pop",
        "popitem",
        "clear",
        "update",
        "setdefault",
        "add",
        "discard",
        "sort",
        "reverse",
    }
)
"""Methods that change a list, a dictionary or a set."""


class Changes:
    """The changes that followed code makes.

    It changes what the code assigns, and forgets what the code changes in ways that are not followed.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def store(self, target: ast.expr, value: Any, frame: Frame, keys: tuple[str, ...] = ()) -> None:
        """Assign a value, which was made from these keys."""
        match target:
            case ast.Name(id=name):
                frame.names[name] = value
                frame.keys[name] = keys
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                known = isinstance(value, (list, tuple)) and len(value) == len(parts)
                for place, part in enumerate(parts):
                    self.store(part, value[place] if known else UNCLEAR, frame, keys)
            case (
                ast.Attribute(value=inner, attr=name)
                | ast.Subscript(value=inner, slice=ast.Constant(value=str(name)))
            ):
                owner = self.reached(inner, frame)
                if isinstance(owner, Made):
                    owner.fields[name] = value
                    plain = (key for key in keys if "." in key and not self._settings.is_section(key))
                    owner.keys.setdefault(name, next(plain, name))
                elif isinstance(owner, Section):
                    self._settings.written.add(owner.child(name))
                elif isinstance(owner, dict) and isinstance(inner, ast.Name) and value is not UNCLEAR:
                    owner[name] = value
                else:
                    self.forget(inner, frame)
            case ast.Subscript(value=inner):
                self.forget(inner, frame)

    def reached(self, node: ast.expr, frame: Frame) -> Any:
        """Return what a name or a chain of attributes stands for, without following any code."""
        match node:
            case ast.Name(id=name):
                return frame.names.get(name, UNCLEAR)
            case (
                ast.Attribute(value=inner, attr=name)
                | ast.Subscript(value=inner, slice=ast.Constant(value=str(name)))
            ):
                owner = self.reached(inner, frame)
                if isinstance(owner, Made):
                    return owner.fields.get(name, UNCLEAR)
                if isinstance(owner, Section):
                    key = owner.child(name)
                    return Section(key) if self._settings.is_section(key) else UNCLEAR
        return UNCLEAR

    def forget(self, node: ast.expr, frame: Frame) -> None:
        """Forget the list, dictionary, set or section that an expression means: code changes it in place."""
        found = self.reached(node, frame)
        match node:
            case ast.Name() if isinstance(found, (list, dict, set)):
                forget_all(found, frame.names)
            case ast.Attribute(value=inner, attr=name) if isinstance(found, (list, dict, set)):
                owner = self.reached(inner, frame)
                if isinstance(owner, Made):
                    owner.fields[name] = UNCLEAR
            case ast.Subscript(value=inner):
                self.forget(inner, frame)
        if isinstance(found, Section) and found.key:
            self._settings.written.add(found.key)

    def call(self, node: ast.Call, frame: Frame) -> None:
        """Forget what a call may change in place: its method's owner, and the containers passed to it."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            self.forget(node.func.value, frame)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(argument, ast.Name) and not isinstance(frame.names.get(argument.id), Section):
                self.forget(argument, frame)
