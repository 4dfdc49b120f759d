"""Calls: of functions that are followed, and of those whose result is known."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.sources.python.definitions import Choices, ClassNode, FunctionNode
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals import known_calls
from verl_doctor.toolkit.sources.python.refusals.expressions import Expressions
from verl_doctor.toolkit.sources.python.refusals.refused import NotFollowedError
from verl_doctor.toolkit.sources.python.refusals.values import (
    NO_MAPPING,
    Frame,
    Made,
    Section,
    blur,
    is_instance,
    is_plain,
)
from verl_doctor.toolkit.sources.python.source import dotted


class Calls(Expressions):
    """Returns the result of a call."""

    _calls: Mapping[str, Any]

    @abstractmethod
    def call(
        self,
        function: FunctionNode,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        keys: Mapping[str | int, tuple[str, ...]] | None = None,
        *,
        awaited: bool = False,
    ) -> Any:
        """Return the result of a function that is followed."""

    @abstractmethod
    def made(self, section: str) -> Any:
        """Return the object that Hydra makes from a section."""

    def _call(self, node: ast.Call, frame: Frame, *, awaited: bool = False) -> Any:
        unpacked = [argument.value for argument in node.keywords if argument.arg is None]
        for part in unpacked:
            before = len(self.settings.read)
            if isinstance(found := self._value(part, frame), NO_MAPPING):
                words = (
                    f"{dotted(node.func)}() argument after ** must be a mapping, not {type(found).__name__}"
                )
                del self.settings.read[:before]
                self._impossible("TypeError", words, node, frame)
        if unpacked or any(isinstance(argument, ast.Starred) for argument in node.args):
            return UNCLEAR
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                return self._above(name, node, frame)
            case ast.Attribute(value=ast.Name(id="object"), attr="__setattr__"):
                owner, name, value = (self._value(argument, frame) for argument in node.args[:3])
                if isinstance(owner, Made) and isinstance(name, str):
                    owner.fields[name] = value
                return None
        keys: dict[str | int, tuple[str, ...]] = {}
        given = [self._argument(argument, place, keys, frame) for place, argument in enumerate(node.args)]
        named = {
            argument.arg: self._argument(argument.value, argument.arg, keys, frame)
            for argument in node.keywords
            if argument.arg
        }
        name = dotted(node.func)
        if name in self._calls:
            return self._calls[name]
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "manual_seed" and given and isinstance(given[0], (str, float)):
                words = f"manual_seed expected a long, but got {type(given[0]).__name__}"
                self._impossible("RuntimeError", words, node, frame)
            owner = self._value(node.func.value, frame)
            answer = known_calls.method_result(self.settings, owner, node.func.attr, given)
            if answer is not known_calls.NOTHING:
                return answer
        if name in ("getattr", "hasattr") and len(given) > 1 and isinstance(given[1], str):
            return known_calls.attribute_of(self.settings, name, given)
        if name == "callable" and len(given) == 1:
            return isinstance(given[0], FunctionNode) or (False if is_plain(given[0]) else UNCLEAR)
        if name == "isinstance" and len(node.args) == 2:
            return is_instance(given[0], node.args[1])
        if name == "OmegaConf.select" and len(given) > 1 and isinstance(given[0], Section):
            return known_calls.selected(self.settings, given[0], given[1], named.get("default"))
        if name.rpartition(".")[2] == "get_args" and given and isinstance(given[0], Choices):
            return given[0].values
        if name.rpartition(".")[2] == "omega_conf_to_dataclass" and given and isinstance(given[0], Section):
            return self.made(given[0].key) if len(given) == 1 and not named else UNCLEAR
        if name in ("os.getenv", "os.environ.get") and given and isinstance(given[0], str):
            found = self._variable(given[0])
            return (given[1] if len(given) > 1 else None) if found is None else found
        if name in known_calls.BUILT_IN and name not in frame.names:
            return self._built_in(name, given, named, node, frame)
        function = self._value(node.func, frame)
        self._update(node, given, keys.get(0, ()), frame)
        self._changes.call(node, frame)
        if isinstance(function, ClassNode) and self.definitions.is_foreign(function):
            made = function
            function = self.definitions.method(made, "__init__") or UNCLEAR
            if isinstance(function, FunctionNode):
                function = replace(function, bound=Made(made, {}))
        if not isinstance(function, FunctionNode):
            return UNCLEAR
        try:
            return self.call(function, given, named, keys, awaited=awaited)
        except NotFollowedError:
            for argument in (function.bound, *given, *named.values()):
                if isinstance(argument, Made):
                    blur(argument)
            return UNCLEAR

    def _argument(
        self, node: ast.expr, place: str | int, keys: dict[str | int, tuple[str, ...]], frame: Frame
    ) -> Any:
        before = len(self.settings.read)
        found = self._value(node, frame)
        keys[place] = tuple(self.settings.read[before:])
        return found

    def _above(self, name: str, node: ast.Call, frame: Frame) -> Any:
        if not isinstance(frame.bound, Made) or frame.owner is None:
            return UNCLEAR
        method = self.definitions.method(frame.bound.owner, name, above=frame.owner)
        if method is None:
            return UNCLEAR
        keys: dict[str | int, tuple[str, ...]] = {}
        given = [self._argument(argument, place, keys, frame) for place, argument in enumerate(node.args)]
        named = {
            keyword.arg: self._argument(keyword.value, keyword.arg, keys, frame)
            for keyword in node.keywords
            if keyword.arg
        }
        return self.call(
            FunctionNode(method.node, method.module, frame.bound, method.owner), given, named, keys
        )

    def _update(self, node: ast.Call, given: Sequence[Any], keys: Iterable[str], frame: Frame) -> None:
        """Refuse the `update` of a dictionary with a value that is none."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "update":
            return
        is_dict = isinstance(self._changes.reached(node.func.value, frame), dict)
        if is_dict and len(given) == 1 and isinstance(given[0], (type(None), bool, int, float, str)):
            try:
                dict(given[0])  # type: ignore[arg-type]
            except (TypeError, ValueError) as error:
                self.settings.read[:] = keys
                self._impossible(type(error).__name__, str(error), node, frame)

    def _built_in(
        self, name: str, given: Sequence[Any], named: Mapping[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        if named or not all(map(is_plain, given)):
            return UNCLEAR
        try:
            return known_calls.BUILT_IN[name](*given)
        except (TypeError, ValueError) as error:
            if name in ("int", "float"):
                self._impossible(type(error).__name__, str(error), node, frame)
            return UNCLEAR
