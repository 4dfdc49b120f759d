"""Records what one module uses.

For each use it records whether it exists, under which conditions it is reached, and what was read to find
out.
"""

from __future__ import annotations

from typing import Literal

from verl_doctor.toolkit.collectors.api.calls import Fit, nearest
from verl_doctor.toolkit.collectors.api.use import Context, Import, Resolution, Use, Uses
from verl_doctor.toolkit.collectors.api.value import Instance, Value, describe
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.answers import Answer, Missing, Present
from verl_doctor.toolkit.sources.python.classes import mro
from verl_doctor.toolkit.sources.python.symbols import Class, Module


class Recorder:
    """The uses of one module as they are found. `patched` are names that the module itself sets on an object.

    `live` are names that are mentioned outside any guard.
    """

    def __init__(self, reader: ValueReader, patched: set[str]) -> None:
        self.reader = reader
        self.patched = patched
        self.found = Uses(reader.module.name, reader.module.path)
        self.live: set[str] = set()

    def member(
        self,
        owner: Value,
        name: str,
        at: tuple[int, int],
        kind: str,
        context: Context,
        narrowed: str = "",
    ) -> None:
        """Record the use of an attribute of a module, a class or an instance."""
        sources = self.reader.sources
        if isinstance(owner, Module):
            answer = sources.member(owner, name)
        elif isinstance(owner, (Instance, Class)):
            answer = sources.member_of_class(owner.of if isinstance(owner, Instance) else owner, name)
        else:
            return
        resolution = _resolution(answer)
        reason = "" if isinstance(answer, Present) else answer.reason
        read_from = answer.read_from if isinstance(answer, Missing) else ""
        alike = self._nearest(owner, name) if resolution == "missing" else ""
        if kind == "attribute" and resolution == "missing" and name in self.patched:
            resolution, reason = "unknown", f"this module itself sets {name} somewhere"
        if resolution == "missing" and narrowed:
            resolution, reason = "unknown", f"an isinstance test has narrowed {narrowed}"
        guard = context.caught(kind, answer)
        self.use(kind, f"{describe(owner)}.{name}", at, resolution, context, guard, alike, reason, read_from)

    def _nearest(self, owner: Value, name: str) -> str:
        """Return the member of a class with the name most similar to the missing one."""
        kind = owner.of if isinstance(owner, Instance) else owner
        if not isinstance(kind, Class):
            return ""
        return nearest(
            name,
            [
                member
                for part in mro(self.reader.sources, kind)
                if isinstance(part, Class)
                for member in part.members
            ],
        )

    def use(
        self,
        kind: str,
        name: str,
        at: tuple[int, int],
        resolution: Resolution,
        context: Context,
        guard: str = "",
        nearest: str = "",
        reason: str = "",
        read_from: str = "",
        unread: tuple[str, ...] = (),
        handler: str = "",
        lacks: Literal["", "module", "name"] = "",
    ) -> None:
        """Create a use under the conditions of its context."""
        guard = guard or context.caught(kind, None)
        when, unit = context.when, context.unit
        self.found.uses.append(
            Use(
                kind,
                name,
                *at,
                resolution,
                unit,
                when,
                guard,
                nearest,
                reason,
                read_from,
                unread,
                handler,
                lacks,
            )
        )

    def mention(self, name: str, context: Context) -> None:
        """Record that a name is used at all, whatever it belongs to."""
        if not context.guard:
            self.live.add(name)
        note(self.found.mentions, name, context)

    def answer(self, kind: str, name: str, at: tuple[int, int], answer: Answer, context: Context) -> None:
        """Record the use of a name that was looked up."""
        self.use(
            kind,
            name,
            at,
            _resolution(answer),
            context,
            guard=context.caught(kind, answer),
            reason="" if isinstance(answer, Present) else answer.reason,
            read_from=answer.read_from if isinstance(answer, Missing) else "",
        )

    def fit(self, callee: Value, fit: Fit, context: Context, path: str) -> None:
        """Record whether one argument of a call is accepted."""
        self.use(
            fit.kind,
            f"{describe(callee)}({fit.name})",
            fit.at,
            "present" if fit.fits else "missing",
            context,
            nearest=fit.nearest,
            read_from=path,
        )

    def imported(self, source: str, name: str, at: tuple[int, int], context: Context) -> None:
        """Record the import of a module, or of a name from it. `at` is its line and column."""
        sources = self.reader.sources
        own = sources.own_name(source)
        if own is None:
            return
        if own.partition(".")[0] not in self.reader.versions:
            self._own_import(own, name, at[0], context)
            return
        sources.touched.clear()
        answer = sources.import_name(source, name) if name else sources.import_module(source)
        unread = tuple(sorted(sources.touched))
        reason = "" if isinstance(answer, Present) else answer.reason
        read_from = answer.read_from if isinstance(answer, Missing) else ""
        resolution = _resolution(answer)
        guard = context.caught("import", answer)
        handler = context.passed_by(answer) if resolution == "missing" and not guard else ""
        name = f"{own}:{name}" if name else own
        lacks = answer.what if isinstance(answer, Missing) else ""
        self.use(
            "import", name, at, resolution, context, guard, "", reason, read_from, unread, handler, lacks
        )

    def _own_import(self, module: str, name: str, line: int, context: Context) -> None:
        conditional = bool(context.when or context.guard or any(context.handlers))
        file = self.reader.sources.file_of(f"{module}.{name}") if name else None
        target = (
            f"{module}.{name}"
            if file is not None and file.kind in {"module", "package", "hidden"}
            else module
        )
        lacked = name if target == module else ""
        self.found.imports.append(
            Import(target, context.unit, conditional, bool(context.guard), line, lacked)
        )


def note(names: dict[str, dict[str, tuple[str, ...]]], name: str, context: Context) -> None:
    """Record the mention of a name, keeping the mention under the fewest conditions."""
    known = names.setdefault(context.unit, {})
    when = (*context.when, context.guard) if context.guard else context.when
    if name not in known or len(when) < len(known[name]):
        known[name] = when


def _resolution(answer: Answer) -> Resolution:
    return (
        "present" if isinstance(answer, Present) else "missing" if isinstance(answer, Missing) else "unknown"
    )
