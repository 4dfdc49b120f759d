"""Facts in a file: taken on one machine, judged on another, now or later."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

from verl_doctor.toolkit.console.masked import masked
from verl_doctor.toolkit.engine.saved_document import SavedFile
from verl_doctor.toolkit.facts import Absent, Broken, Collector, Unknown, UnknownKind
from verl_doctor.toolkit.system import user_file
from verl_doctor.toolkit.system.restore import restored
from verl_doctor.toolkit.target import UsageError

SCHEMA_VERSION = 1
_KINDS: Mapping[str, type[Unknown]] = {"absent": Absent, "unknown": Unknown, "broken": Broken}
# The sentences of 0.1.0, for _kind_of_old alone.
_OLD_SENTENCES: Mapping[str, UnknownKind] = {
    "it is tried with --deep alone": "not tried",
    "isolated (-I -S) it answers": "sound when isolated",
    "no folder for temporary files": "no temporary folder",
    os.strerror(errno.EAGAIN): "no more processes",
    os.strerror(errno.ENOMEM): "no more processes",
    "no libnvidia-ml.so.1": "no library",
}
_FILE = SavedFile(
    kind="facts file",
    key="facts",
    content=dict,
    make="verl-doctor check --save-facts FILE",
    again="save the facts again",
    version=SCHEMA_VERSION,
    largest=256,
)
_HEAD = re.compile(rf'{{\n "schema_version": {SCHEMA_VERSION},\n "verl_doctor": "[^"\n]*",')
_FACTS = '\n "facts": {'
_NEXT = '\n  "'  # no string of JSON spans lines, so what begins a line at this depth is a fact's name
_END = "\n }\n}\n"


@dataclass(frozen=True)
class NotHeld(Unknown):
    """A fact that a file lacks: it was not collected, or the verl-doctor that wrote the file lacked it."""


def dump(facts: Mapping[type, Any], collectors: Iterable[Collector], version: str) -> str:
    """Return the portable facts among the collected ones as JSON text."""
    # ASCII, because a file name that is not UTF-8 is decoded to text that UTF-8 cannot encode.
    return json.dumps(masked(document(facts, collectors, version)), indent=1) + "\n"


def document(facts: Mapping[type, Any], collectors: Iterable[Collector], version: str) -> dict[str, Any]:
    """Return the portable facts among the collected ones as JSON types."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verl_doctor": version,
        "facts": entries(facts, collectors),
    }


def document_of(path: Path, kind: str = _FILE.kind, make: str = _FILE.make) -> dict[str, Any]:
    """Return the content of a facts file of any version.

    `kind` is the expected kind. Raises UsageError when it is no such file.
    """
    return replace(_FILE, kind=kind, make=make).document(path)


def texts_in(path: Path) -> dict[str, str]:
    """Return the entries of a facts file as a node would have sent them. Raises UsageError.

    A file in the layout of `dump` is split at its entries, which costs a tenth of parsing and writing all of
    them.
    """
    head, _, facts = _text(path).partition(_FACTS)
    if not _HEAD.fullmatch(head) or not facts.endswith(_END):
        return {name: json.dumps(entry) for name, entry in _FILE.read(path).items()}
    cut = (entry.partition('": ') for entry in facts.removesuffix(_END).split(_NEXT)[1:])
    return {name: entry.rstrip(",") for name, _, entry in cut}


def _text(path: Path) -> str:
    try:
        return (user_file.read(path, _FILE.largest * 2**20) or b"").decode("ascii")
    except UnicodeDecodeError:
        return ""


def entries(facts: Mapping[type, Any], collectors: Iterable[Collector]) -> dict[str, Any]:
    """Return the portable facts, by name."""
    by_name = {
        collector.name: entry(facts[collector.fact])
        for collector in collectors
        if not collector.local and collector.fact in facts
    }
    return dict(sorted(by_name.items()))


def entry(fact: Any) -> dict[str, Any]:
    """Return a fact as files store it: its value under "is", or the reason under the kind of its absence."""
    if isinstance(fact, Unknown):
        names = {unknown: name for name, unknown in _KINDS.items()}
        # The nearest kind: a plugin may have its own.
        kind = next(names[parent] for parent in type(fact).__mro__ if parent in names)
        return {kind: fact.reason, **({"kind": fact.kind} if fact.kind else {})}
    return {"is": asdict(fact) if is_dataclass(fact) and not isinstance(fact, type) else fact}


def load(path: Path, collectors: Iterable[Collector]) -> dict[type, Any]:
    """Read a facts file. A fact of this doctor that the file does not hold is Unknown.

    Raises UsageError when it is not a facts file, or of another version.
    """
    return facts_of(_FILE.read(path), collectors, str(path))


def facts_of(entries: Mapping[str, Any], collectors: Iterable[Collector], path: str) -> dict[type, Any]:
    """Return the facts of these collectors from their entries, Unknown without an entry.

    `path` is the entries' source.

    Raises UsageError when an entry is damaged.
    """
    return {collector.fact: _read(path, collector, entries.get(collector.name)) for collector in collectors}


def _read(path: str, collector: Collector, entry: Any) -> Any:
    if collector.local:
        return Unknown("it needs the machine itself, and this is a facts file")
    if entry is None:
        return NotHeld(f"{path} does not contain the fact {collector.name}")
    return restore(f"{path}: ", collector, entry)


def restore(where: str, collector: Collector, entry: Any) -> Any:
    """Return the fact, or the `Unknown`, of an entry.

    Raises UsageError, beginning with `where`, when it is damaged.
    """
    if isinstance(entry, dict):
        if len(entry) == 1 and "is" in entry:
            return _restored(where, collector, entry["is"])
        if (unknown := _unknown(entry)) is not None:
            return unknown
    raise UsageError(f"{where}the fact {collector.name} is damaged; save the facts again")


def _unknown(entry: Mapping[str, Any]) -> Unknown | None:
    """Return why there is no fact, from an entry under the kind of its absence; None for any other entry."""
    reasons = {name: value for name, value in entry.items() if name != "kind"}
    if len(reasons) != 1:
        return None
    ((name, reason),) = reasons.items()
    if name not in _KINDS or not isinstance(reason, str):
        return None
    if "kind" not in entry:
        return _KINDS[name](reason, kind=_kind_of_old(reason))
    known = entry["kind"] in get_args(UnknownKind)  # a later doctor may have more of them
    return _KINDS[name](reason, kind=entry["kind"] if known else "")


def _kind_of_old(reason: str) -> UnknownKind:
    """COMPATIBILITY: files of verl-doctor 0.1.0 hold only the sentence.

    The only place where a kind is parsed from a sentence.
    """
    return next((kind for words, kind in _OLD_SENTENCES.items() if words in reason), "")


def _restored(where: str, collector: Collector, value: Any) -> Any:
    try:
        return restored(collector.fact, value)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UsageError(
            f"{where}the fact {collector.name} is damaged ({reason}); save the facts again"
        ) from None
