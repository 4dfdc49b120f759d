"""The value of an attribute that a class of the examined module stores on itself."""

from __future__ import annotations

import ast
from typing import Any

from verl_doctor.toolkit.collectors.api.decisions.bindings import agreed
from verl_doctor.toolkit.collectors.api.decisions.evaluator import Evaluator, section_of
from verl_doctor.toolkit.collectors.api.decisions.import_outcomes import is_harmless
from verl_doctor.toolkit.collectors.api.value import LocalClass
from verl_doctor.toolkit.sources.python.classes import mro
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.source import dotted
from verl_doctor.toolkit.sources.python.symbols import Class

_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


class OwnAttributes:
    """Evaluates `self.name`. `evaluator` evaluates what is stored there."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.reader = evaluator, evaluator.reader

    def value(self, local: LocalClass, name: str) -> Any:
        """Return the value of `self.name`, if it is a section or all stored there follows from settings."""
        if self.evaluator.settings is None:
            return UNCLEAR
        key = (id(local), f"self.{name}")
        if key in self.evaluator.active:
            return UNCLEAR
        self.evaluator.active.add(key)
        try:
            stored, above = local.stored.get(name, []), local.bases
            if not stored and any(name in base.stored for base in above):
                return agreed([self.value(base, name) for base in above if name in base.stored])
            if not stored:
                return self._of_class(local, name)
            values = []
            for expression, annotation, scope in stored:
                section = section_of(self.evaluator, "", annotation) if annotation else None
                if section is not None:
                    values.append(section)
                elif expression is None or isinstance(expression, ast.Constant):
                    return UNCLEAR
                else:
                    values.append(self.evaluator.value(expression, scope, expression.lineno))
            found = agreed(values)
            if found is UNCLEAR and len(values) == 1 and not self._is_of_library(local):
                return self._by_name(name)
            return found
        finally:
            self.evaluator.active.discard(key)

    def _of_class(self, local: LocalClass, name: str) -> Any:
        """Return the value of a property of the class, or a section that another class of verl stores."""
        for part in local.node.body:
            if (
                isinstance(part, _Functions)
                and part.name == name
                and "property" in {dotted(decorator) for decorator in part.decorator_list}
            ):
                match [node for node in part.body if not is_harmless(node)]:
                    case [ast.Return(value=ast.expr() as returned)] if local.home is not None:
                        inner = local.home(part)
                        return self.evaluator.value(returned, inner, returned.lineno)
                return UNCLEAR
        return UNCLEAR if self._is_of_library(local) else self._by_name(name)

    def _by_name(self, name: str) -> Any:
        section = section_of(self.evaluator, name, "")
        return UNCLEAR if section is None else section

    def _is_of_library(self, local: LocalClass) -> bool:
        """Return whether a class extends a library's class, whose attributes have meanings unknown here."""
        made = self.reader.class_of(local)
        parts = [None] if made is None else mro(self.reader.sources, made)
        return any(
            part is None
            or (isinstance(part, Class) and part.module.partition(".")[0] in self.reader.versions)
            for part in parts
        )
