"""A rehearsal's command: the script's words, then those for a small step, with the installed verl's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, UNDETERMINED, Configuration
from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.commands.smoke.rehearsal.requirements import RequiredValue
from verl_doctor.toolkit.sources.hydra.words import word


@dataclass(frozen=True)
class Replaced:
    """A value that the script, or verl by default, sets, and its replacement in the rehearsal.

    `from_script`: set by the script.
    """

    key: str
    old: Any
    new: Any
    why: str
    from_script: bool


@dataclass(frozen=True)
class Words:
    """The words after the program's name, what they replace, and the script's words with unknown values."""

    words: tuple[str, ...]
    replaced: tuple[Replaced, ...]
    undetermined: tuple[str, ...]


def words_for(
    configuration: Configuration,
    given: Sequence[Word],
    required_values: Iterable[RequiredValue],
    is_read: Callable[[str], bool],
) -> Words:
    """Return the words of a command.

    `is_read` reports whether verl's sources contain a name that its configuration files lack.
    """
    replaced = []
    for required in required_values:
        key = next((key for key in required.keys if configuration.get(key) is not MISSING), "")
        parent, _, name = required.keys[0].rpartition(".")
        if not key and (
            (required.hidden and is_read(name)) or (required.passed_on and _is_tree(configuration, parent))
        ):
            key = required.keys[0]
        if key and (change := _change(configuration, key, required)):
            replaced.append(change)
    texts = [word.text for word in given if word.text is not None]
    return Words(
        (*texts, *(word(replacement.key, replacement.new, "++") for replacement in replaced)),
        tuple(replaced),
        tuple(word.written for word in given if word.text is None),
    )


def _is_tree(configuration: Configuration, key: str) -> bool:
    return isinstance(configuration.get(key), Mapping)


def _change(configuration: Configuration, key: str, required: RequiredValue) -> Replaced | None:
    """Return the change to a key; None if it has the value already, or a smaller one that suffices."""
    old = configuration.get(key)
    from_script = configuration.override_of(key) is not None
    if old == required.value or (required.only_if_set and not from_script):
        return None
    if (
        required.most
        and isinstance(old, (int, float))
        and not isinstance(old, bool)
        and 0 < old <= required.value
    ):
        return None
    if required.most and old is None:
        return None
    return Replaced(
        key, None if old is MISSING or old is UNDETERMINED else old, required.value, required.why, from_script
    )
