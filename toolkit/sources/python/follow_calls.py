"""Computes calls from a syntax tree: of functions of the tree, of dictionaries, and of Python's builtins."""

from __future__ import annotations

import ast
import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.follow_expressions import Expressions
from verl_doctor.toolkit.sources.python.follow_values import (
    Class,
    Function,
    Instance,
    Outside,
    Place,
    Table,
    is_one_of,
    of_text,
    tabled,
    tried,
)


class Calls(Expressions):
    """The part of `python.follow.Follow` that determines what is called; the function itself is run there."""

    @abstractmethod
    def call(
        self, function: Function, given: Iterable[Any] = (), words: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function. Parameters that are not given have their defaults, or are unclear."""

    def called(self, node: ast.Call, names: Mapping[str, Any]) -> Any:
        """Return the value of a call."""
        place = self._place(node)
        given = [
            self.value(argument, names) for argument in node.args if not isinstance(argument, ast.Starred)
        ]
        words: dict[str, Any] = {}
        for word in node.keywords:
            value = self.value(word.value, names)
            if word.arg is not None:
                words[word.arg] = value
            elif isinstance(value, Table):
                words.update(value)
        if isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Call) and _is_super(node.func.value):
                return self._above(node.func.attr, given, words, names)
            owner = self.value(node.func.value, names)
            if isinstance(owner, Table) and not (node.func.attr in owner and callable(owner[node.func.attr])):
                return self._of_table(owner, node.func.attr, given, words, place)
            if isinstance(owner, str):
                return of_text(owner, node.func.attr, given)
            function = self._attribute(owner, node.func.attr)
            if function is UNCLEAR:
                return self._hook(f"?.{node.func.attr}", [owner, *given], words, place)
        else:
            function = self.value(node.func, names)
        match function:
            case Function():
                answer = self._hook(f"{function.module.name}.{function.node.name}", given, words, place)
                return self.call(function, given, words) if answer is UNCLEAR else answer
            case Class():
                return Instance(function)
            case Outside(name=name):
                return self._of_python(name, given, words, place)
        return UNCLEAR

    def _above(self, name: str, given: list[Any], words: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
        """Evaluate `super().name(...)`."""
        myself = names.get("self")
        if not isinstance(myself, Instance):
            return UNCLEAR
        for base in self.bases(myself.kind):
            if found := self._method(base, name):
                return self.call(Function(found.node, found.module, Instance(base)), given, words)
        return UNCLEAR

    def _of_table(
        self, table: Table, name: str, given: list[Any], words: Mapping[str, Any], place: Place
    ) -> Any:
        """Evaluate a method of a dictionary, or of `os.environ`."""
        weakly = self._weak > table.level
        key, default = [*given, None, None][:2]
        match name:
            case "copy":
                return self._new(table)
            case "keys":
                return list(table)
            case "values":
                return list(table.values())
            case "items":
                return [[key, value] for key, value in table.items()]
            case "update":
                for other in (*given, Table(words)):
                    table.add(other, place, weakly=weakly)
            case "get" | "pop" | "setdefault":
                default = words.get("default", default)
                if not isinstance(key, str):
                    return UNCLEAR
                found = table.get(key, UNCLEAR if table.open else default)
                if name == "pop":
                    table.take(key, place, weakly=weakly)
                elif name == "setdefault" and key not in table:
                    table.put(key, default, place, weakly=weakly or table.open)
                    found = table[key]
                return found
            case _:
                return UNCLEAR
        return None

    def _of_python(self, name: str, given: list[Any], words: Mapping[str, Any], place: Place) -> Any:
        """Evaluate a builtin, or a function that the hook handles."""
        first = given[0] if given else UNCLEAR
        match name, first:
            case "os.getenv", str():
                return self._of_table(self.environ, "get", given, words, place)
            case (("builtins.list" | "builtins.tuple" | "builtins.sorted"), Table()):
                return list(first)
            case "builtins.isinstance", _:
                return is_one_of(first, given[1:])
            case (("builtins.list" | "builtins.tuple"), list()):
                return list(first)
            case "builtins.dict", _:
                table = self._new(first if isinstance(first, Table) else None)
                table.open = table.open or (bool(given) and not isinstance(first, Table))
                table.add(Table(words), place)
                return table
            case "builtins.str", (str() | int() | bool() | float()):
                return str(first)
            case "builtins.int", (str() | int() | bool()):
                return tried(int, first)
            case "builtins.bool", _:
                return self.truth(first)
            case "builtins.len", (list() | str()):
                return len(first)
            case "json.loads", str():
                return tabled(tried(json.loads, first), place)
        return self._hook(name, given, words, place)


def _is_super(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args
