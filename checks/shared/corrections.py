"""The corrections of a launch script that rules propose, and the fix that applies each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypedDict

from verl_doctor.checks.shared.configuration import place
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration, OverrideWord
from verl_doctor.toolkit.collectors.configuration.validation.nearest_accepted import keeps_result
from verl_doctor.toolkit.rule import Correction, Location, Rewrite
from verl_doctor.toolkit.sources.hydra.written import as_written

KEEPS_RESULT = "script-word"
CHANGES_RESULT = "script-word-changed"
_EDITABLE = frozenset(
    {
        "applied",
        "chosen",
        "no such key",
        "already there",
        "not an override",
        "several values",
        "nothing to delete",
    }
)


class Healed(TypedDict, total=False):
    """The fields of a finding that a correction fills."""

    fix: str
    correction: Correction


def healed(code: str, correction: Correction | None) -> Healed:
    """The fields of a finding of this rule; empty if there is no correction."""
    if correction is None:
        return {}
    others = tuple(replace(other, code=code, fix=_fix_of(other)) for other in correction.others)
    return {"fix": _fix_of(correction), "correction": replace(correction, code=code, others=others)}


def _fix_of(correction: Correction) -> str:
    return CHANGES_RESULT if correction.effect else KEEPS_RESULT


def reworded(word: OverrideWord, new: str | None, why: str = "", effect: str = "") -> Correction | None:
    """The correction that replaces or removes one word; None for a word outside a file or in a condition."""
    where = place(word)
    if where.line is None or word.conditional or word.fate not in _EDITABLE:
        return None
    return Correction("", (Rewrite(word.text, new, where),), why, effect)


def settings(
    configuration: Configuration, values: Mapping[str, Any], why: str = "", effect: str | None = None
) -> Correction | None:
    """The correction that sets keys to other values, and removes those with the value `LEAVE_OUT`.

    The keys determine how it changes the training, unless `effect` is given.
    """
    rewrites: list[Rewrite] = []
    for key, value in values.items():
        word = configuration.override_of(key)
        if word is None:
            if value is LEAVE_OUT or not _has_file(configuration.overrides) or _is_broken(configuration, key):
                return None
            sign = "" if configuration.has(key) else "+"
            added = f"{sign}{key}={as_written(value)}"
            left_out = next((place for place, rewrite in enumerate(rewrites) if rewrite.new is None), None)
            if left_out is None:
                rewrites.append(Rewrite("", added))
            else:  # it stands where the other stood
                rewrites[left_out] = replace(rewrites[left_out], new=added)
            continue
        head = word.text.partition("=")[0]
        new = None if value is LEAVE_OUT else f"{head}={as_written(value)}"
        if new == word.text:
            continue
        correction = reworded(word, new)
        if correction is None:
            return None
        rewrites += correction.rewrites
    if not rewrites:
        return None
    return Correction(
        "", tuple(rewrites), why, effect_of(configuration, values) if effect is None else effect
    )


def without_value(configuration: Configuration, key: str) -> Correction | None:
    """The correction of a number that is none.

    It is 1 for a micro batch, which fits every batch; otherwise verl's default.
    """
    if keeps_result(key) and "micro" in key:
        return settings(configuration, {key: 1}, "a micro batch of 1 fits every batch")
    default = configuration.default(key)
    if default is not None and not isinstance(default, (int, float)):
        return None
    return settings(configuration, {key: LEAVE_OUT}, effect=f"{key} is verl's default, {as_written(default)}")


def variable(
    name: str, value: str | None, at: Location | None, new: str | None, why: str = "", effect: str = ""
) -> Correction | None:
    """Return what changes a variable where a file sets it, or comments that line out if `new` is None.

    None if no file sets it.
    """
    if at is None or not at.line or value is None:
        return None
    written = None if new is None else f"{name}={new}"
    return Correction("", (Rewrite(f"{name}={value}", written, at),), why, effect)


LEAVE_OUT = object()
"""In place of a value: remove the key."""


def effect_of(configuration: Configuration, values: Mapping[str, Any]) -> str:
    """How other values of these keys change the training, as text; "" if they do not."""
    changed = [
        (
            f"{key} is {_shown(configuration.default(key) if value is LEAVE_OUT else value)} instead of "
            f"{_shown(configuration.get(key))}"
        )
        for key, value in values.items()
        if not keeps_result(key)
    ]
    return f"this changes the training: {'; '.join(changed)}" if changed else ""


def _shown(value: Any) -> str:
    if value is MISSING:
        return "not set"
    return "verl's default" if type(value) is object else as_written(value)


def _is_broken(configuration: Configuration, key: str) -> bool:
    """Whether a word that Hydra does not accept mentions the key: it must be corrected first."""
    return any(key in word.text for word in configuration.overrides if word.fate not in {"applied", "chosen"})


def _has_file(words: Iterable[OverrideWord]) -> bool:
    """Whether the command's words are in a file, to which others can be added."""
    return any(place(word).line is not None and not word.conditional for word in words)
