"""Facts in a file: taken on one machine, judged on another, today or in a month."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.facts import Absent, Broken, Collector, Unknown
from verl_doctor.toolkit.savedfile import SavedFile
from verl_doctor.toolkit.target import UsageError

SCHEMA_VERSION = 1
_KINDS: Mapping[str, type[Unknown]] = {"absent": Absent, "unknown": Unknown, "broken": Broken}
_FILE = SavedFile(
    kind="facts file",
    key="facts",
    content=dict,
    make="verl-doctor check --save-facts FILE",
    again="take the facts anew",
    version=SCHEMA_VERSION,
    largest=256,
)


def dump(answers: Mapping[type, Any], collectors: Iterable[Collector], version: str) -> str:
    """Write the portable ones among the collected facts as JSON."""
    facts = {
        collector.name: _entry(answers[collector.fact])
        for collector in collectors
        if not collector.local and collector.fact in answers
    }
    document = {
        "schema_version": SCHEMA_VERSION,
        "verl_doctor": version,
        "facts": dict(sorted(facts.items())),
    }
    # ASCII, because a file name that is no UTF-8 is read as text which UTF-8 cannot say.
    return json.dumps(document, indent=1) + "\n"


def _entry(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Unknown):
        names = {unknown: name for name, unknown in _KINDS.items()}
        # The nearest one: a plugin may have a kind of its own.
        kind = next(names[parent] for parent in type(answer).__mro__ if parent in names)
        return {kind: answer.reason}
    return {"is": asdict(answer) if is_dataclass(answer) and not isinstance(answer, type) else answer}


def load(path: Path, collectors: Iterable[Collector]) -> dict[type, Any]:
    """Read a facts file. A fact of this doctor that the file does not hold is Unknown.

    Raises UsageError when the file is none, or of another version.
    """
    facts = _FILE.read(path)
    return {collector.fact: _read(path, collector, facts.get(collector.name)) for collector in collectors}


def _read(path: Path, collector: Collector, entry: Any) -> Any:
    if collector.local:
        return Unknown("it needs the machine itself, and this is a facts file")
    if entry is None:
        return Unknown(f"{path} holds no {collector.name}")
    if isinstance(entry, dict) and len(entry) == 1:
        (kind, value), *_ = entry.items()
        if kind in _KINDS and isinstance(value, str):
            return _KINDS[kind](value)
        if kind == "is":
            return _restored(path, collector, value)
    raise UsageError(f"{path}: the fact {collector.name} is damaged; take the facts anew")


def _restored(path: Path, collector: Collector, value: Any) -> Any:
    import dacite  # noqa: PLC0415 - only a facts file needs it

    try:
        return dacite.from_dict(collector.fact, value, dacite.Config(cast=[tuple], check_types=True))
    except (dacite.DaciteError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UsageError(
            f"{path}: the fact {collector.name} is damaged ({reason}); take the facts anew"
        ) from None
