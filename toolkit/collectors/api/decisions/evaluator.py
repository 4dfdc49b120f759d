"""What the modules that follow names and attributes need of the evaluation of expressions."""

from __future__ import annotations

import ast
from typing import Any, Protocol

from verl_doctor.toolkit.collectors.api.settings import Settings, SettingsSection
from verl_doctor.toolkit.collectors.api.value import Scope
from verl_doctor.toolkit.collectors.api.values import ValueReader


class Evaluator(Protocol):
    """Evaluates the expressions of one module.

    `active` are the expressions, names and attributes that are being evaluated. `first_only` is set once a
    value is used that a function changes later.
    """

    reader: ValueReader
    settings: Settings | None
    active: set[tuple[int, str]]
    first_only: bool

    def value(self, node: ast.expr, scope: Scope, line: int) -> Any:
        """Return the value of an expression at a line: a Python value, a `SettingsSection`, or UNCLEAR."""

    def test(self, node: ast.expr, scope: Scope, line: int) -> bool | None:
        """Return whether a part of a condition holds; None if undecided."""


def section_of(evaluator: Evaluator, name: str, annotation: str) -> SettingsSection | None:
    """Return the section that a name with this annotation holds, None unless verl's naming decides it."""
    reader, settings = evaluator.reader, evaluator.settings
    if settings is None or (annotation and reader.is_watched(reader.instance_of(annotation, reader.module))):
        return None
    return settings.section_of(name, annotation, reader.module.name)
