"""The variables of a script: what is assigned to them, and which of them programs inherit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.sources.shell.command_words import expanded
from verl_doctor.toolkit.sources.shell.expand import LONGEST, evaluated, text, undecided
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.state import (
    UNSET,
    Array,
    Either,
    EnvironmentChange,
    Local,
    ShellState,
    Unset,
    Value,
)
from verl_doctor.toolkit.sources.shell.syntax import Assignment, Text, Written


@dataclass
class Variables:
    """Changes the variables of the shell that is being followed: `scope.state`.

    `is_conditional`: what is changed now may not be.
    """

    scope: Scope
    is_conditional: Callable[[], bool]

    @property
    def _state(self) -> ShellState:
        return self.scope.state

    @property
    def _path(self) -> str:
        return self.scope.source()

    def forget(self) -> None:
        """Make all variables unknown: names that could not be determined were assigned."""
        self._state.variables.update(dict.fromkeys(self._state.variables))
        self._state.forgotten = True

    def value_of(self, assignment: Assignment) -> Value:
        """Return the value of a variable after an assignment."""
        before = self.scope.get(assignment.name)
        sums = "i" in (self._state.attributes.get(self._state.resolved(assignment.name) or "") or "")
        if sums and assignment.append and assignment.items is None and assignment.index is None:
            value = self._text_of(assignment)
            old = "0" if isinstance(before, Unset) else before
            return f"({old}) + ({value})" if isinstance(old, str) and isinstance(value, str) else None
        if assignment.items is not None:
            items = self._array(assignment.items)
            if any(item.raw.startswith("[") for item in assignment.items):
                return None  # explicit subscripts
            if not assignment.append or isinstance(before, Unset):
                return items
            if before is None:
                return None
            if isinstance(before, Array) and isinstance(items, Array) and before.path == items.path:
                return Array([*before, *items], [*before.words, *items.words], items.path)
            if isinstance(before, Either):
                return None
            return [*(before if isinstance(before, list) else [before]), *items]
        value = self._text_of(assignment)
        if assignment.index is not None:
            return None
        if isinstance(before, list):
            return None
        if assignment.append and isinstance(before, Either):
            return Either(tuple(old + value for old in before.texts)) if isinstance(value, str) else None
        if isinstance(value, Either):
            return None if assignment.append else value
        if assignment.append:
            if isinstance(before, Unset):
                return value
            return None if before is None or isinstance(before, Either) or value is None else before + value
        return value

    def _array(self, words: tuple[Written, ...]) -> list[str | None]:
        """Return the elements of an array, with the words that they were written as when each is one."""
        values = expanded(words, self.scope, self._path)
        return Array(values, words, self._path) if len(values) == len(words) else values

    def _text_of(self, assignment: Assignment) -> str | Either | None:
        """Return the assigned text: several when it contains an undecided variable."""
        choice = undecided(assignment.value, self.scope)
        if choice is None:
            return text(assignment.value, self.scope)
        name, either = choice
        before = self._state
        texts = []
        for possible in either.texts:
            self.scope.state = before.copy()
            self._state.variables[self._state.resolved(name) or name] = possible
            texts.append(text(assignment.value, self.scope))
        self.scope.state = before
        known = tuple(dict.fromkeys(found for found in texts if found is not None))
        return Either(known) if None not in texts else None

    def store(self, name: str, value: Value, line: int, *, exports: bool = False) -> None:
        """Give a variable a value, and pass it on to programs where it is exported."""
        target = self._state.resolved(name)
        if target is None:
            self.forget()
            return
        letters = self._state.attributes.get(target, "")
        if letters and "r" in letters:
            self._state.status = False
            if exports:
                self.export(target, self._state.value(target), line)
            return
        value = self._with_attributes(letters, value)
        if isinstance(value, (str, list)) and len(value) > LONGEST:
            value = None
        all_exported = self._state.option("allexport")
        exported = exports or all_exported or self._state.exports(target)
        self._state.variables[target] = value
        if exported or exported is None or all_exported is None:
            self.export(target, value, line, certain=exported is True)

    def _with_attributes(self, letters: str | None, value: Value) -> Value:
        """Return the value that a variable gets which was declared with `-i`, `-l` or `-u`.

        None if that is undecided.
        """
        if letters == "":
            return value
        if letters is None or not isinstance(value, str):
            return None
        if "i" in letters:
            number = evaluated((Text(value),), self.scope)
            return None if number is None else str(number)
        return value.lower() if "l" in letters else value.upper()

    def localise(self, name: str) -> None:
        """Make a variable local to the function that is being followed."""
        state = self._state
        if name not in state.locals[-1]:
            hidden = Local(state.stored(name), state.exports(name), state.attributes.get(name, ""))
            state.locals[-1] = {**state.locals[-1], name: hidden}
            state.variables[name] = UNSET

    def export(self, name: str, value: Value | Unset, line: int, *, certain: bool = True) -> None:
        """Pass a variable on to the programs that follow."""
        target = self._state.resolved(name) or name
        self._state.exported[target] = True if certain else None
        if not isinstance(value, Unset):
            entry = self.entry(target, value, line)
            self._state.changes.append(entry if certain else replace(entry, conditional=True))

    def unset(self, name: str, line: int) -> None:
        """Remove a variable, unless it is readonly."""
        certain = self._state.attributes.get(name, "") is not None
        self._state.variables[name] = UNSET if certain else None
        if certain:
            self._state.attributes.pop(name, None)
        self.unexport(name, line, certain=certain)

    def unexport(self, name: str, line: int, *, certain: bool = True) -> None:
        """Pass a variable on no longer."""
        self._state.exported[name] = False if certain else None
        entry = replace(self.entry(name, None, line), removed=True)
        self._state.changes.append(entry if certain else replace(entry, conditional=True))

    def entry(self, name: str, value: Value | Unset, line: int) -> EnvironmentChange:
        """Return a change to the environment."""
        known = value if isinstance(value, str) else None
        return EnvironmentChange(name, known, self._path, line, conditional=self.is_conditional())

    def of_command(self, assignments: Sequence[Assignment]) -> list[EnvironmentChange]:
        """Return the changes to the environment that `A=1 B=$A command` makes for this command alone."""
        state, variables = self._state, self._state.variables
        changes: list[EnvironmentChange] = []
        if assignments:
            state.variables = dict(variables)  # each sees those before it
        for assignment in assignments:
            letters = state.attributes.get(assignment.name, "")
            if letters and "r" in letters:
                continue
            value = None if letters is None else self.value_of(assignment)
            state.variables[assignment.name] = value
            changes.append(self.entry(assignment.name, value, assignment.line))
        state.variables = variables
        return changes

    def environment(self) -> tuple[EnvironmentChange, ...]:
        """Return the changes to the environment.

        A variable whose value changed since it was exported has its present one.
        """
        state = self._state
        last = {entry.name: entry for entry in state.changes}
        changed = [
            replace(entry, value=value if isinstance(value, str) else None)
            for name, entry in last.items()
            if not (entry.removed or entry.conditional) and entry.value is not None
            if state.exports(name) and not isinstance(value := state.value(name), (Either, Unset))
            if value != entry.value
        ]
        return (*state.changes, *changed)

    def with_own(self, changes: Sequence[EnvironmentChange], follow: Callable[[], None]) -> None:
        """Follow commands with variables of their own: the given ones, and those a function makes local."""
        state, start = self._state, len(self._state.changes)
        state.locals.append({})
        for entry in changes:
            self.localise(entry.name)
            state.variables[entry.name], state.exported[entry.name] = entry.value, True
            state.changes.append(entry)
        follow()
        state = self._state
        names = {entry.name for entry in changes}
        again = [entry for entry in state.changes[start:] if entry.name in names][len(changes) :]
        end_functions(state, len(state.locals) - 1, start)
        for entry in again:  # releases of bash differ in whether such an export counts afterwards
            state.variables[entry.name] = state.exported[entry.name] = None
            state.changes.append(replace(entry, value=None, removed=False, conditional=True))


def end_functions(state: ShellState, depth: int, start: int) -> None:
    """Give the variables of functions, down to a depth, back what they hid.

    `start` is the number of changes before these functions.
    """
    while len(state.locals) > depth:
        names = state.locals.pop()
        for name, hidden in names.items():
            state.variables[name] = hidden.value
            state.exported[name] = hidden.exported
            state.attributes[name] = hidden.attributes
        state.changes[start:] = [entry for entry in state.changes[start:] if entry.name not in names]
