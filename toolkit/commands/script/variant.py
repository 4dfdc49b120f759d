"""A variant of a launch script: the settings to change, and why.

Recipes create them, `script.text` writes them.
"""

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
class ValueChange:
    """A key of verl's configuration, its requested value, and the reason in a few words.

    `sign` is "+" for a key that verl lacks.
    """

    key: str
    value: Any
    why: str
    sign: Literal["", "+"] = ""


@dataclass(frozen=True)
class Recipe:
    """The changes to one command.

    `kept` are sentences about settings that stay although a change might be expected.
    """

    changes: tuple[ValueChange, ...] = ()
    kept: tuple[str, ...] = ()


class RecipeBuilder:
    """A recipe in the making: requests for keys that this verl has and whose values need to change.

    Values are those of the job with all requests so far, because many of verl's keys follow others.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.kept: list[str] = []
        self._tree: dict[str, Any] = copied(configuration.after)
        self._found: dict[str, ValueChange] = {}

    def value(self, key: str) -> Any:
        """Return the value of a key: MISSING, UNDETERMINED or a value."""
        return lookup(self._tree, key)

    def certain(self, key: str) -> bool:
        """Return whether no unresolved word of the command can set the key to another value."""
        return self.configuration.complete or key in self._found

    def number(self, key: str) -> int | None:
        """Return the value if it is a whole number."""
        value = self.value(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def give(self, key: str, value: Any, why: str) -> None:
        """Request a value, if verl has the key and its value differs."""
        now = self.value(key)
        if now is MISSING or (type(now) is type(value) and now == value):
            return
        if apply(self._tree, Override("", key, value)) == "applied":
            self._found[key] = ValueChange(key, value, why)

    def append(self, key: str, value: Any, why: str) -> None:
        """Add a key to a section that is free for the user, unless the script sets it."""
        if self.value(key) is MISSING and apply(self._tree, Override("+", key, value)) == "applied":
            self._found[key] = ValueChange(key, value, why, "+")

    def lower(self, key: str, value: int, why: str) -> None:
        """Request at most this number: smaller values, and those that are not numbers, stay."""
        now = self.number(key)
        if now is not None and now > value:
            self.give(key, value, why)

    def recipe(self) -> Recipe:
        """Return all requests in order."""
        return Recipe(tuple(self._found.values()), tuple(self.kept))


def path_of(script: Path, kind: Kind) -> Path:
    """Return the path of the variant: `run.sh` becomes `run_debug.sh`."""
    return script.with_name(f"{script.stem}_{kind.lower()}{script.suffix}")


def head_of(kind: Kind, script: str, content: bytes) -> str:
    """Return the comment atop a variant: the script it was made from, and the digest of its content."""
    return f"{kind} variant of {script} ({digest_of(content)})"


def digest_of(content: bytes) -> str:
    """Return the digest by which variants refer to a script."""
    return f"sha256 {hashlib.sha256(content).hexdigest()[:16]}"


def made_from(text: str) -> str | None:
    """Return the digest of the script that a variant was made from; None if its head has none."""
    found = _HEAD.search(text)
    return found[1] if found else None


def leaves(tree: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a composed configuration by dotted key; a list is one value."""
    if isinstance(tree, dict) and (tree or not key):
        for name, value in tree.items():
            yield from leaves(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, tree
