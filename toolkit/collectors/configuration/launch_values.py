"""Single values of the job's configuration, for facts that need only one or two of them.

They come from the words of the command, which can be read even if nothing else can, and otherwise from verl's
configuration if it could be composed: its defaults, and values from a user's configuration file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.sources.hydra.grammar import OverrideError, parse_override
from verl_doctor.toolkit.sources.hydra.lookup import MISSING, UNDETERMINED

_MANDATORY = "???"  # OmegaConf: the user must set it
_OWN_CONFIGURATION = (
    "--config-",
    "-cp",
    "-cn",
    "-cd",
)  # Hydra's options that name a folder or a file of the user's
_KEY = re.compile(r"\"?(?:\+\+?)?([A-Za-z_][\w.]*)=")


@dataclass(frozen=True)
class KeyValue:
    """The value given to a key: a Python value (None for null), and where it is written.

    `known` is False if reading cannot determine the value, `interpolated` if it is a text that names other
    values.
    """

    key: str
    value: Any
    known: bool = True
    path: str = ""
    line: int = 0
    interpolated: bool = False

    @property
    def text(self) -> str:
        """The value as text; empty for null or an unknown value."""
        return str(self.value) if self.known and self.value is not None else ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The elements of a list, or the single value, as text."""
        return tuple(map(str, self.value)) if isinstance(self.value, list) else (self.text,)


@dataclass(frozen=True)
class LaunchValues:
    """The values by key: from the command, then from verl's configuration.

    `partial`: a configuration that could not be composed, or words that could not be read, may set other keys
    too.
    """

    words: Mapping[str, KeyValue] = field(default_factory=dict)
    configuration: Configuration | None = None
    partial: bool = False

    def get(self, key: str) -> KeyValue | None:
        """Return the value of a dotted key, unknown if it may be set elsewhere; None for verl's default."""
        word = self.words.get(key)
        if word is None and self.partial:
            return KeyValue(key, None, known=False)
        if self.configuration is None or (word is not None and not word.interpolated):
            return word
        value = self.configuration.get(key)
        if word is not None:
            return word if value in (MISSING, UNDETERMINED) else replace(word, value=value, known=True)
        if value is MISSING or value == _MANDATORY:
            return None
        origin = self.configuration.origins.get(key, "")
        path = str(Path(self.configuration.folder, origin)) if origin else ""
        return KeyValue(key, None if value is UNDETERMINED else value, value is not UNDETERMINED, path)


def launch_values(launch: Launch | Unknown, configuration: Configuration | Unknown) -> LaunchValues:
    """Combine both sources. Of two words with the same key the last one counts."""
    composed = None if isinstance(configuration, Unknown) or configuration.refused else configuration
    words = launch.command.words if isinstance(launch, Launch) and launch.command is not None else ()
    found = {}
    for word in words:
        match = _KEY.match(word.written if word.text is None else word.text)
        if match is None:
            continue
        try:
            value, known = (None, False) if word.text is None else (parse_override(word.text).value, True)
        except OverrideError:
            value, known = None, False
        interpolated = isinstance(value, str) and "${" in value
        found[match[1]] = KeyValue(
            match[1], value, known and not interpolated, word.path, word.line, interpolated
        )
    return LaunchValues(found, composed, partial=composed is None and _may_set_more(launch))


def _may_set_more(launch: Launch | Unknown) -> bool:
    """Return whether keys may have values that no readable word gives.

    They may be in the user's own configuration, or in words that are unknown.
    """
    command = launch.command if isinstance(launch, Launch) else None
    return command is not None and (
        not command.of_verl
        or any(word.text is None or word.text.startswith(_OWN_CONFIGURATION) for word in command.words)
    )


def given(values: LaunchValues, *keys: str) -> KeyValue | None:
    """Return the first of these keys that is set to a value other than null, even if it is unknown."""
    for key in keys:
        entry = values.get(key)
        if entry is not None and (not entry.known or entry.text):
            return entry
    return None


def text_of(values: LaunchValues, *keys: str) -> str:
    """Return the value of the first of these keys that is set, as text.

    The result is empty if none is set, or if the value is unknown.
    """
    entry = given(values, *keys)
    return entry.text if entry is not None else ""
