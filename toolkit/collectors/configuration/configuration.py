"""The job's configuration: verl's tree composed as by Hydra, with the launch script's overrides applied."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Literal

from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.sources.hydra.apply import apply
from verl_doctor.toolkit.sources.hydra.grammar import Override, OverrideError, parse_override
from verl_doctor.toolkit.sources.hydra.lookup import MISSING, UNDETERMINED, lookup

# Stands for a value that reading the script cannot determine: an interpolation that never resolves.
UNDETERMINED_VALUE = "${untold}"
_KEY_WRITTEN = re.compile(r"[\"']?((?:\+{0,2}|~)[A-Za-z_][\w./@-]*)=")

Fate = Literal[
    "applied",
    "chosen",
    "no such key",
    "already there",
    "nothing to delete",
    "no such group",
    "not an override",
    "several values",
    "not told",
]

_LARGEST = 10**15


@dataclass(frozen=True)
class OverrideWord:
    """A word of the command line as an override: what it requests, and the outcome.

    `sign` is "", "+", "++" or "~". `value` is a Python value, or `UNDETERMINED_VALUE` if reading cannot
    determine it. `why` describes briefly where the word stops being a valid override. `fate` is "not told" if
    not even its key is known, and "chosen" if `key` is a group of files and `value` names one of them. A
    `conditional` word may be absent, so the value of its key is unknown. `foreseen`: verl's sources compare
    the key with exactly this string.
    """

    text: str
    path: str
    line: int
    fate: Fate
    key: str = ""
    sign: str = ""
    value: Any = None
    why: str = ""
    conditional: bool = False
    foreseen: bool = False


@dataclass(frozen=True)
class Configuration:
    """The configuration for the program: `before` is the tree without overrides, `after` with them.

    `name` is the primary file, `folder` the first that is searched for it, `program` the file that reads it.
    `added_folder` is that of `--config-dir`, which Hydra searches last, "" if there is none. `origins` map
    each key of verl's tree to the place of its definition, relative to `folder` if below it. `deprecated` are
    the comments of keys that verl's own files call deprecated. `refused` is why Hydra would not compose it;
    the trees are empty then, and `missing_folder` is a folder on its search path that does not exist here;
    `looked_here` if that depends on where the job starts. `missing_option` is the file of a chosen option
    that does not exist ("model_engine/fsdp"), `options` are those that its group has, `found_with` is the
    entry of `hydra.searchpath` with which Hydra finds it in verl's own folder. `verl` is the version of the
    tree. `added` are keys of the user's own files that verl's files do not set. `own_parts`: the
    program is not verl's, and may have a trainer, workers or a data set of its own, to which verl's
    conditions do not apply.
    """

    program: str
    folder: str
    name: str
    overrides: tuple[OverrideWord, ...] = ()
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    deprecated: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    verl: str = ""
    missing_folder: str = ""
    looked_here: bool = False
    missing_option: str = ""
    options: tuple[str, ...] = ()
    found_with: str = ""
    added: tuple[str, ...] = ()
    own_parts: bool = False
    added_folder: str = ""

    @property
    def complete(self) -> bool:
        """Whether every word is known, so that there are no other overrides."""
        return not self.refused and self.unknown_word is None

    @property
    def unknown_word(self) -> OverrideWord | None:
        """The first command word or program line that may set any key, which reading cannot determine."""
        return next((override for override in self.overrides if override.fate == "not told"), None)

    @property
    def why_incomplete(self) -> str:
        """Why values other than the known ones may be set; "" if all are known."""
        if self.refused:
            return "the configuration could not be composed"
        word = self.unknown_word
        if word is None:
            return ""
        why = word.why or f"{word.text or 'a word'} in the command is unknown"
        return f"{why} ({PurePath(word.path).name}:{word.line})"

    def get(self, key: str) -> Any:
        """Return the value of a dotted key with interpolations resolved, `MISSING` or `UNDETERMINED`."""
        return lookup(self.after, key)

    def default(self, key: str) -> Any:
        """Like `get`, without the overrides."""
        return lookup(self.before, key)

    def own_line(self, key: str) -> tuple[str, int] | None:
        """Return the line of the user's own file that sets a key.

        The result is None if verl's files set it, or if the program is not verl's.
        """
        place, _, line = self.origins.get(key, "").rpartition(":")
        before, inside, _ = self.program.rpartition("/verl/trainer/")
        path = f"{self.folder}/{place}" if not place.startswith("/") else place
        if not place or not inside or path.startswith(f"{before}/verl/"):
            return None
        return path, int(line)

    def number(self, key: str) -> int | float | None:
        """Return the value if rules can calculate with it: a number not infinite, nor beyond 10**15."""
        value = self.get(key)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return value if is_number and abs(value) <= _LARGEST else None

    def has(self, key: str) -> bool:
        """Return whether verl's tree has this key."""
        return lookup(self.before, key) is not MISSING

    def override_of(self, key: str) -> OverrideWord | None:
        """Return the word that set a key; None if it has verl's default."""
        return next(
            (
                override
                for override in reversed(self.overrides)
                if override.key == key and override.fate == "applied"
            ),
            None,
        )


def with_overrides(tree: Configuration, words: Sequence[Word]) -> Configuration:
    """A configuration that is already composed, with these words applied in order."""
    after = copied(tree.before)
    composed = []
    for word in words:
        parsed, override = as_override(word, multirun=False)
        composed.append(parsed if override is None else replace(parsed, fate=apply(after, override)))
    return replace(tree, overrides=tuple(composed), after=as_far_as_known(after, composed))


def as_far_as_known(tree: Mapping[str, Any], words: Sequence[OverrideWord]) -> Mapping[str, Any]:
    """Return the tree, with undetermined defaults if the command has a word that may set any key."""
    if not any(word.fate == "not told" for word in words):
        return tree
    unknown: Mapping[str, Any] = _with_unknown_defaults(
        tree, {word.key for word in words if word.fate == "applied"}
    )
    return unknown


def _with_unknown_defaults(tree: Any, known: Collection[str], path: str = "") -> Any:
    """Return the tree with `UNDETERMINED_VALUE` where an unknown word may have replaced a default.

    The keys of Hydra and of classes stay.
    """
    if path in known or path.rpartition(".")[2].startswith("_"):
        return tree
    if isinstance(tree, Mapping) and (tree or not path):
        return {
            key: _with_unknown_defaults(value, known, f"{path}.{key}" if path else str(key))
            for key, value in tree.items()
        }
    return UNDETERMINED_VALUE


def copied(tree: Any) -> Any:
    """A copy of dictionaries and lists with the same leaves; `deepcopy` takes ten times as long."""
    if isinstance(tree, Mapping):
        return {key: copied(value) for key, value in tree.items()}
    return [copied(value) for value in tree] if isinstance(tree, list) else tree


def as_override(word: Word, *, multirun: bool) -> tuple[OverrideWord, Override | None]:
    """Parse a word. The second value is None if it is not an override that may be applied."""
    text = word.text
    if text is None or word.conditional:
        key = _KEY_WRITTEN.match(word.written if text is None else text)
        if not key:
            return OverrideWord(
                text or word.written, word.path, word.line, "not told", conditional=word.conditional
            ), None
        text = f"{key[1]}={UNDETERMINED_VALUE}"
    written = word.text if word.text is not None else word.written
    try:
        override = parse_override(text)
    except OverrideError as problem:
        return OverrideWord(written, word.path, word.line, "not an override", why=str(problem)), None
    parsed = OverrideWord(
        written,
        word.path,
        word.line,
        "applied",
        override.key,
        override.sign,
        override.value,
        conditional=word.conditional,
    )
    if override.computed or (override.several and multirun):
        return replace(parsed, value=UNDETERMINED_VALUE), replace(
            override, value=UNDETERMINED_VALUE, several=False
        )
    if override.several:
        return replace(parsed, fate="several values"), None
    if override.key.split(".")[0].split("/")[0] == "hydra":
        return parsed, None  # Hydra's own tree
    return parsed, override


__all__ = ["MISSING", "UNDETERMINED", "UNDETERMINED_VALUE", "Configuration", "Fate", "OverrideWord", "copied"]
