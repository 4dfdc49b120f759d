"""Whether a condition holds that depends on the job's settings or on a flag set elsewhere in verl."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from verl_doctor.toolkit.collectors.api.decisions.bindings import END
from verl_doctor.toolkit.collectors.api.decisions.evaluation import Evaluation
from verl_doctor.toolkit.collectors.api.settings import Settings
from verl_doctor.toolkit.collectors.api.value import Scope
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.source import dotted, walk


class Decisions:
    """Decides the conditions of one module.

    Without settings, only constants and the outcomes of imports are known.
    """

    def __init__(self, reader: ValueReader, settings: Settings | None = None) -> None:
        self.reader, self.settings = reader, settings
        self.evaluation = Evaluation(reader, settings)
        self._known: dict[tuple[int, int], tuple[ast.expr, bool | None]] = {}

    def holds(self, test: ast.expr, scope: Scope) -> bool | None:
        """Return whether a condition holds; None if undecided."""
        key = (id(test), id(scope))
        if key in self._known:
            return self._known[key][1]
        with self.evaluation.notes.for_good():
            held = self._holds(test, scope)
        # the contents of a half-built scope may change
        if not self.reader.building and not self.evaluation.active:
            self._known[key] = (test, held)
        return held

    def _holds(self, test: ast.expr, scope: Scope) -> bool | None:
        with self._anew() as evaluation:
            held = evaluation.truth(test, scope, _line_of(test))
            if held is False and evaluation.first_only:
                return None
            return self._of_feature(test) if held is None else held
        return None

    def is_none(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether an expression is certainly None."""
        with self._anew() as evaluation:
            return evaluation.value(node, scope, _line_of(node)) is None and not evaluation.first_only
        return False

    @contextmanager
    def _anew(self) -> Iterator[Evaluation]:
        """Evaluate something of its own; what is nested too deeply for that stays undecided."""
        evaluation = self.evaluation
        before, evaluation.first_only = evaluation.first_only, False
        try:
            yield evaluation
        except RecursionError:
            pass
        finally:
            evaluation.first_only = before

    def is_unbound(self, body: list[ast.stmt], name: str, scope: Scope) -> bool:
        """Return whether these statements certainly leave a name unbound."""
        names = self.evaluation.names
        try:
            return name not in scope.changed and names.after(body, name, END, scope, MISSING) is MISSING
        except RecursionError:
            return False

    def _of_feature(self, test: ast.expr) -> bool | None:
        """Return whether a condition tests for a part of verl, such as `lora_loaded`.

        The script switches that part on, so the condition may hold later.
        """
        features = self.settings.features if self.settings is not None else ()
        if not features or any(
            isinstance(part, (ast.Not, ast.NotIn, ast.Is, ast.Lt, ast.LtE, ast.Or)) for part in ast.walk(test)
        ):
            return None
        if any(
            isinstance(part, ast.Compare)
            and isinstance(part.ops[0], (ast.Gt, ast.GtE))
            and not isinstance(part.comparators[0], ast.Constant)
            for part in walk(test)
        ):
            return None  # two quantities of the part are compared: that is no switch
        names = {dotted(part).lower() for part in walk(test) if isinstance(part, (ast.Name, ast.Attribute))}
        return True if any(word in name for word in features for name in names) else None


def _line_of(node: ast.expr) -> int:
    """Return the line of an expression. A synthesized negation has no line, so its operand's counts."""
    return next((line for part in walk(node) if (line := getattr(part, "lineno", 0))), END)
