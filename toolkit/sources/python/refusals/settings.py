"""The configuration as followed code reads it, and the keys that it has read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_doctor.toolkit.sources.hydra.lookup import MISSING, UNDETERMINED
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.values import PLAIN, Made, Section

REQUIRED = "???"
"""What stands for a value in a configuration that somebody has to give."""


@dataclass
class Settings:
    """The configuration's values, and which keys the followed code reads and changes.

    `look` returns the configuration's value for a key, `MISSING` or `UNDETERMINED`; `removed` are keys that
    the job takes out of it.

    `read` are the keys read since the last condition, `around` those of each enclosing condition, `written`
    the keys that the code changes.
    """

    look: Callable[[str], Any]
    removed: frozenset[str] = frozenset()
    read: list[str] = field(default_factory=list)
    around: list[list[str]] = field(default_factory=list)
    written: set[str] = field(default_factory=set)

    def value_at(self, key: str) -> Any:
        """Return the configuration's value for a key, in the form in which code is followed."""
        self.read.append(key)
        if any(key == written or key.startswith(f"{written}.") for written in self.written):
            return UNCLEAR
        return self._taken(self.look(key), key)

    def _taken(self, found: Any, key: str) -> Any:
        if found is MISSING:
            return MISSING
        if found is UNDETERMINED or found == REQUIRED or (isinstance(found, str) and "${" in found):
            return UNCLEAR
        if isinstance(found, Mapping):
            return Section(key)
        if isinstance(found, list):
            return [self._taken(element, f"{key}.{place}") for place, element in enumerate(found)]
        return found if isinstance(found, PLAIN) else UNCLEAR

    def value_in(self, section: Section, name: object) -> Any:
        """Return the value of a name in a part of the configuration."""
        return self.value_at(section.child(name))

    def field_of(self, made: Made, name: str) -> Any:
        """Return a field of an object, and note the key that it was made from."""
        self.read.append(made.keys.get(name, name))
        return made.fields[name]

    def names_in(self, section: Section) -> tuple[str, ...]:
        """Return the names in a part of the configuration."""
        content = self.look(section.key)
        return tuple(map(str, content)) if isinstance(content, Mapping) else ()

    def is_section(self, key: str) -> bool:
        """Return whether a key holds other keys."""
        return isinstance(self.look(key), Mapping)

    def is_empty(self, section: Section) -> Any:
        """Return whether a part of the configuration has no keys; `UNCLEAR` where code changes it."""
        if not section.key:
            return False
        changed = any(written.startswith(f"{section.key}.") for written in self.written)
        return UNCLEAR if changed else not self.look(section.key)

    def is_removed(self, key: str) -> bool:
        """Return whether the job takes a key out of the configuration."""
        return key in self.removed and self.look(key) is MISSING

    def keys_read(self) -> tuple[str, ...]:
        """Return the keys that were read last, without the sections on the way to them."""
        return self._plain(self.read)

    def keys_around(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys of the conditions around, without these keys."""
        around = self._plain(key for condition in self.around for key in condition)
        return tuple(key for key in around if key not in keys)

    def _plain(self, keys: Iterable[str]) -> tuple[str, ...]:
        return tuple(key for key in dict.fromkeys(keys) if key and not self.is_section(key))
