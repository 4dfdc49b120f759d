"""The place of a script at which words are expanded."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from verl_doctor.toolkit.sources.shell.state import UNSET, Either, ShellState, Unset, Value
from verl_doctor.toolkit.system.secret import is_secret

BLANKS = " \t\n"
"""The IFS of a new shell."""


@dataclass
class Scope:
    """What words are expanded with at one place of a script.

    `script` is `$0`, `source` the file whose text is followed, for BASH_SOURCE. `printed` returns a command
    substitution's output, or None. `unset` collects unset names that were expanded plainly; those for which
    `is_empty` holds then count as empty, as in bash, all others as unknown. `needed` collects those of
    `${name:?message}`, with the message, `changed` the names that an expansion assigned, `refused` bash's
    messages for expressions that it does not evaluate. `finds` returns whether files match a pattern.
    `is_zsh`: the text of a variable is not split, a plain name stands for all elements of an array, and these
    count from one.
    """

    state: ShellState = field(default_factory=ShellState)
    script: str = ""
    source: Callable[[], str] = lambda: ""
    printed: Callable[[str], str | None] = lambda _: None
    unset: list[str] = field(default_factory=list)
    is_empty: Callable[[str], bool] = lambda _: False
    needed: list[tuple[str, str]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    finds: Callable[[str], bool] = lambda _: False
    is_zsh: bool = False

    def set(self, name: str, value: str | None) -> None:
        """Assign a variable within an expansion, as `${name:=value}` does."""
        target = self.state.resolved(name)
        if target is not None:
            self.state.variables[target] = None if self.state.attributes.get(target, "") != "" else value
            self.changed.append(target)

    def matches(self, value: str, pattern: str) -> bool | None:
        """Return whether a text matches a pattern of the shell; None for patterns that are not followed."""
        if re.search(r"[\[(\\]", re.sub(r"\[[*?[]\]", "", pattern)):
            return None
        return (
            fnmatch.fnmatchcase(value.lower(), pattern.lower())
            if self.state.option("nocasematch")
            else fnmatch.fnmatchcase(value, pattern)
        )

    @property
    def separators(self) -> str | None:
        """The characters of IFS: where the shell splits. None when unknown."""
        value = self.state.variables.get("IFS", BLANKS)
        return BLANKS if isinstance(value, Unset) else value if isinstance(value, str) else None

    def get(self, name: str) -> Value | Unset:
        """Return the value of a variable or parameter."""
        state = self.state
        target = state.resolved(name)
        if target is None or target in state.variables:
            return _withheld(target or name, state.value(name))
        if name in ("@", "*"):
            return list(state.arguments)
        if name == "#":
            return str(len(state.arguments)) if state.called and None not in state.arguments else None
        if name == "0":
            return self.script or None
        if name.isdigit():
            return state.arguments[int(name) - 1] if int(name) <= len(state.arguments) else UNSET
        if name == "PWD":
            return state.cwd or None
        if name == "BASH_SOURCE":
            return [self.source() or None] if self.script else [None]
        if name in ("?", "$", "!", "-", "_", "RANDOM", "SECONDS", "LINENO", "HOSTNAME", "UID", "EUID"):
            return None
        return _withheld(target, state.value(target))

    def single(self, name: str) -> str | Unset | None:
        """Like `get`, but an array gives its first element, as in the shell, and an undecided text None."""
        value = self.get(name)
        if isinstance(value, Either):
            return None
        if isinstance(value, list):
            return value[0] if value else UNSET
        return value


def _withheld(name: str, value: Value | Unset) -> Value | Unset:
    """Return the value, or None (set but unknown) for a possible secret.

    Words made from a secret must not carry it into a fact.
    """
    if name in ("PWD", "OLDPWD") or value is None or isinstance(value, Unset):
        return value
    texts = value.texts if isinstance(value, Either) else (value if isinstance(value, str) else "several",)
    return None if any(is_secret(name, text) for text in texts) else value
