"""An environment file's entry for one variable, and the effect of sourcing such a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.change import SetVariable
from verl_doctor.toolkit.collectors.launch.environment import is_harmless
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.system.secret import BLANKED, suggests_secret, without_user
from verl_doctor.toolkit.text import harmless

SOURCED = "_VERL_DOCTOR_ENV"
"""The shell file sets it to the path where it was first written, so a later run can detect what it set.

No package reads it.
"""

_NO_MORE = "verl-doctor fix no longer requires it"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, order=True)
class Reason:
    """Which fix for which rule needs this value, and why, in one line."""

    code: str
    fix: str
    why: str

    def __str__(self) -> str:
        return f"{self.code} {self.fix}: {self.why}"


@dataclass(frozen=True)
class Entry:
    """One variable of the files.

    A `value` of None unsets it; `prepend` and `node_only` are as in `SetVariable`.

    `instead_of` is the environment's former value, None if it had none or if the value is prepended to it.
    """

    name: str
    value: str | None
    reasons: tuple[Reason, ...]
    prepend: bool = False
    node_only: bool = False
    instead_of: str | None = None


def entry(wanted: SetVariable, code: str, fix: str) -> Entry:
    """Return the entry for a variable that a fix sets.

    Raises Refused if a file may not or cannot contain it.
    """
    name, value = wanted.name, wanted.value
    if not _NAME.fullmatch(name) or "\0" in (value or "") or (wanted.prepend and not value):
        raise Refused(f"{harmless(name)} cannot be set by a shell; this is a bug of the fix {fix}")
    if suggests_secret(name) or not may_be_written(name, value or ""):
        raise Refused(f"{name} may hold a secret, which verl-doctor never writes to a file; set it by hand")
    return Entry(name, value, (Reason(code, fix, reason_of(wanted)),), wanted.prepend, wanted.node_only)


def reason_of(wanted: SetVariable) -> str:
    """Return why and until when it is needed, in one line.

    What depends on this machine only is judged again by each run.
    """
    why, until = (" ".join(sentence.split()).rstrip(".") for sentence in (wanted.why, wanted.until))
    return harmless("; ".join(filter(None, (why, f"needed until {until or _NO_MORE}"))))


def united(old: Entry, new: Entry) -> Entry:
    """Merge two entries for the same variable. Raises Refused, with both reasons, if they conflict.

    Values to prepend to a list are combined, the older first.
    """
    reasons = tuple(dict.fromkeys((*old.reasons, *new.reasons)))
    node_only = old.node_only or new.node_only
    if old.prepend and new.prepend and old.value is not None and new.value is not None:
        folders = dict.fromkeys([*old.value.split(os.pathsep), *new.value.split(os.pathsep)])
        return Entry(old.name, os.pathsep.join(folders), reasons, prepend=True, node_only=node_only)
    if (old.value, old.prepend) != (new.value, new.prepend):
        sides = " but ".join(f"{entry_text(entry)} is required by {entry.reasons[0]}" for entry in (old, new))
        raise Refused(f"{sides}; decide by hand, or ignore one of the rules with --ignore")
    return Entry(old.name, old.value, reasons, node_only=node_only)


def may_be_written(name: str, value: str) -> bool:
    """Return whether a file may contain this value.

    It may not contain a URL with user and password, nor a value in which a fact has masked them, because the
    job needs them.
    """
    return is_harmless(name, value) and BLANKED not in without_user(value)


def entry_text(entry: Entry) -> str:
    """Return the entry as a short text."""
    if entry.value is None:
        return f"no {entry.name}"
    return f"{entry.value} in front of {entry.name}" if entry.prepend else f"{entry.name}={entry.value}"


def sourced(environ: Mapping[str, str], entries: Iterable[Entry]) -> dict[str, str]:
    """Return the environment after sourcing the shell file with these entries."""
    after = dict(environ)
    for entry in entries:
        if entry.value is None:
            after.pop(entry.name, None)
        elif entry.prepend:
            after[entry.name] = in_front(entry.value, after.get(entry.name, ""))
        else:
            after[entry.name] = entry.value
    return after


def in_front(value: str, path: str) -> str:
    """Return a list of folders with `value` in front, as the shell file builds it."""
    if f"{path}{os.pathsep}".startswith(f"{value}{os.pathsep}"):
        return path
    return f"{value}{os.pathsep}{path}" if path else value


def without(environ: Mapping[str, str], entries: Iterable[Entry], sign: str) -> dict[str, str]:
    """Return the environment as if the shell file with this mark and these entries had not been sourced."""
    before = dict(environ)
    if before.pop(SOURCED, None) != sign:
        return dict(environ)
    for entry in entries:
        now = before.get(entry.name)
        if entry.prepend and entry.value is not None and now is not None:
            rest = now.removeprefix(entry.value).removeprefix(os.pathsep)
            if now in {entry.value, f"{entry.value}{os.pathsep}{rest}"}:
                before.pop(entry.name)
                before.update({entry.name: rest} if rest else {})
        elif not entry.prepend and now == entry.value:
            before.pop(entry.name, None)
            before.update({entry.name: entry.instead_of} if entry.instead_of is not None else {})
    return before
