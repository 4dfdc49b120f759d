"""A variant of a launch script: the settings to change, and why. Recipes make them, `script.text` writes them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration, copied
from verl_doctor.toolkit.sources.hydra.apply import apply
from verl_doctor.toolkit.sources.hydra.grammar import Override
from verl_doctor.toolkit.sources.hydra.lookup import lookup

Kind = Literal["DEBUG", "FAST_LOAD"]

_HEAD = re.compile(r"\A(?:#!.*\n)?# (?:DEBUG|FAST_LOAD) variant of .* \((sha256 [0-9a-f]{16})\)")


@dataclass(frozen=True)
class Wish:
    """A key of verl's configuration, the value that it is to have, and why in a few words. `sign` is "+" for a key that verl lacks."""

    key: str
    value: Any
    why: str
    sign: Literal["", "+"] = ""


@dataclass(frozen=True)
class Recipe:
    """What a variant is to change in one command. `kept` are sentences about what stays, although a change might be expected."""

    wishes: tuple[Wish, ...] = ()
    kept: tuple[str, ...] = ()


class Wishes:
    """A recipe in the making: wishes for keys that this verl has, and only where the value is not as it should be.

    Values are those that the job would have with all that was wished for so far: many of verl's keys follow others.
    """

    def __init__(self, there: Configuration) -> None:
        self.there = there
        self.kept: list[str] = []
        self._tree: dict[str, Any] = copied(there.after)
        self._found: dict[str, Wish] = {}

    def value(self, key: str) -> Any:
        """What a key has: MISSING, UNTOLD or a value."""
        return lookup(self._tree, key)

    def certain(self, key: str) -> bool:
        """Whether no word of the command that cannot be told may give the key another value."""
        return self.there.complete or key in self._found

    def number(self, key: str) -> int | None:
        """The value when it is a whole number."""
        value = self.value(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def give(self, key: str, value: Any, why: str) -> None:
        """Wish for a value, if verl has the key and its value is another one."""
        now = self.value(key)
        if now is MISSING or (type(now) is type(value) and now == value):
            return
        if apply(self._tree, Override("", key, value)) == "applied":
            self._found[key] = Wish(key, value, why)

    def append(self, key: str, value: Any, why: str) -> None:
        """Wish for a key of a section that is the user's own, unless the script sets it."""
        if self.value(key) is MISSING and apply(self._tree, Override("+", key, value)) == "applied":
            self._found[key] = Wish(key, value, why, "+")

    def lower(self, key: str, value: int, why: str) -> None:
        """Wish for at most this number: what is less already, or is no number, stays."""
        now = self.number(key)
        if now is not None and now > value:
            self.give(key, value, why)

    def recipe(self) -> Recipe:
        """What was wished for, in order."""
        return Recipe(tuple(self._found.values()), tuple(self.kept))


def path_of(script: Path, kind: Kind) -> Path:
    """Where the variant goes: `run.sh` becomes `run_debug.sh`."""
    return script.with_name(f"{script.stem}_{kind.lower()}{script.suffix}")


def head_of(kind: Kind, script: str, content: bytes) -> str:
    """The comment at the top of a variant: of which script it was made, and of which content."""
    return f"{kind} variant of {script} ({digest_of(content)})"


def digest_of(content: bytes) -> str:
    """A digest of a script, as its variants name it."""
    return f"sha256 {hashlib.sha256(content).hexdigest()[:16]}"


def made_from(text: str) -> str | None:
    """The digest of the script that a variant was made of; None when its head does not say."""
    found = _HEAD.search(text)
    return found[1] if found else None


def leaves(tree: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a composed configuration with its dotted key; a list is one value."""
    if isinstance(tree, dict) and (tree or not key):
        for name, value in tree.items():
            yield from leaves(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, tree
