"""The data classes of uses: a single use, all uses of a module, and the context of the place being read."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import Literal

from verl_doctor.toolkit.collectors.api.guards import (
    Handler,
    Verdict,
    error_of,
    is_universal,
    judge,
    rules_out,
)
from verl_doctor.toolkit.collectors.api.value import Scope
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.source import dotted, text_of

Resolution = Literal["present", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class Use:
    """A single use. `unit` is the function or method that contains it ("" at module level).

    `kind` and `name` are those of `ApiUse`. `when` holds the conditions around it, `guard` what would catch
    or avoid a miss. `unread` are modules that an import needs and that could not be read. `lacks` is what is
    missing: the whole "module", or a "name" in it.
    """

    kind: str
    name: str
    line: int
    column: int
    resolution: Resolution
    unit: str
    when: tuple[str, ...] = ()
    guard: str = ""
    nearest: str = ""
    reason: str = ""
    read_from: str = ""
    unread: tuple[str, ...] = ()
    handler: str = ""
    lacks: Literal["", "module", "name"] = ""


@dataclass(frozen=True, slots=True)
class Import:
    """An import of another module of the same tree, or of a `name` from it.

    `conditional`: it may not run, or may fail harmlessly.
    """

    module: str
    unit: str
    conditional: bool
    guarded: bool = False
    line: int = 0
    name: str = ""


@dataclass(slots=True)
class Uses:
    """Everything that was read from one module.

    `mentions` are the names that each unit uses at all, `calls` those that it calls, each with the conditions
    around it. `sent` are the names of methods that each unit has workers run, as in
    `collective_rpc("init_worker")`. `units` maps each function or method to its class, if it has one. `dead`
    are functions mentioned here only where the two trees show that the code is not reached, or below a test
    of vLLM that they leave open. `patched` are the names that the module sets on classes and modules of the
    examined packages. `off` are the conditions, each with its unit, that the job's settings do not meet.
    """

    module: str
    path: str
    uses: list[Use] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    mentions: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    calls: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    sent: dict[str, set[str]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    patched: set[str] = field(default_factory=set)
    off: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Context:
    """The context of the statement being read.

    `ruled_out` is the test by which verl distinguishes this release from others; `narrowed` holds the
    subjects of `isinstance` tests.
    """

    scope: Scope
    unit: str = ""
    in_class: str = ""
    when: tuple[str, ...] = ()
    guard: str = ""
    handlers: tuple[tuple[Handler, ...], ...] = ()
    ruled_out: str = ""
    narrowed: frozenset[str] = frozenset()

    def settled(self, test: ast.expr, verdict: Verdict) -> Context:
        """Return the context below a condition that the trees decide.

        What verl raises there is meant for this release.
        """
        condition = text_of(test) if verdict.probe and rules_out(test) else ""
        return replace(self, ruled_out=condition) if condition else self

    def noted(self, condition: str) -> Context:
        """Return the context below one more condition."""
        return replace(self, when=(*self.when, condition))

    def under(self, test: ast.expr, reader: ValueReader) -> Context:
        """Return the context below a condition, as far as the trees do not decide it."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            context = self
            for part in test.values:
                context = context.under(part, reader)
            return context
        verdict = judge(test, reader, self.scope)
        if verdict.holds is True or is_universal(text := text_of(test)):
            return self
        if not verdict.probe and (held := reader.by_settings(test, self.scope)) is not None:
            if held:
                return self
            reader.off.add((self.unit, text))
        if verdict.probe:
            return replace(self, guard=self.guard or text)
        match test:
            case ast.Call(func=ast.Name(id="isinstance"), args=[subject, _]) if name := dotted(subject):
                return replace(self.noted(text), narrowed=self.narrowed | {name})
        return self.noted(text)

    def caught(self, kind: str, answer: object = None) -> str:
        """A description of what would catch or avoid a miss of this kind here; "" if nothing would."""
        if self.guard:
            return self.guard
        error = error_of(kind, answer)
        for handlers in reversed(self.handlers):
            taking = next((handler for handler in handlers if handler.takes(error)), None)
            if taking is not None and not taking.raises:
                return taking.text
        return ""

    def passed_by(self, answer: object) -> str:
        """The enclosing handler that expects a failed import but does not catch this error, as text."""
        error = error_of("import", answer)
        around = (handler for handlers in reversed(self.handlers) for handler in handlers)
        meant = (
            handler for handler in around if "ModuleNotFoundError" in handler.names and not handler.raises
        )
        wrong = (handler for handler in meant if not handler.takes(error))
        return next((handler.text for handler in wrong), "")


def position(node: ast.expr | ast.keyword | ast.alias) -> tuple[int, int]:
    """Line and column of a node."""
    return node.lineno, node.col_offset
