"""Composes a Hydra configuration from its files as Hydra does, without Hydra. Follows hydra-core 1.3."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.sources.hydra.apply import Outcome, apply, merge
from verl_doctor.toolkit.sources.hydra.defaults import (
    Choices,
    CompositionError,
    Defaults,
    Entry,
    NotFollowedError,
)
from verl_doctor.toolkit.sources.hydra.grammar import Override
from verl_doctor.toolkit.sources.hydra.yaml import ConfigFile, NoConfigError, read_config

_LARGEST = 4_000_000


@dataclass
class Sources:
    """The folders that Hydra searches for a file, in order.

    `texts` are those of files that do not exist yet, None if unknown.

    `own` is the folder of Hydra's own options, None if that is unknown or if plugins may bring others.
    """

    folders: Sequence[Path]
    texts: Mapping[str, str | None] = field(default_factory=dict)
    own: Path | None = None
    read: dict[str, ConfigFile | None] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def load(self, path: str) -> ConfigFile | None:
        """Return a file by its path without `.yaml`; None if it does not exist. Raises CompositionError."""
        name = os.path.normpath(path)
        if name not in self.read:
            self.read[name] = self._load(name)
        return self.read[name]

    def _load(self, name: str) -> ConfigFile | None:
        own = (self.own,) if self.own is not None and name.startswith("hydra/") else ()
        for folder in (*self.folders, *own):
            for suffix in ("", ".yaml") if name.endswith((".yaml", ".yml")) else (".yaml",):
                path = Path(f"{folder / name}{suffix}")
                text = self.texts.get(str(path), "")
                if text is None:
                    raise NotFollowedError(f"{path}, which the script writes")
                try:
                    if not text and (not os.path.isfile(path) or path.stat().st_size > _LARGEST):
                        continue
                    text = text or path.read_text("utf-8")
                except (OSError, ValueError):
                    continue
                self.paths[name] = str(path)
                try:
                    return read_config(text)
                except NoConfigError as problem:
                    raise CompositionError(f"{path}: {problem}") from None
        return None

    def has_group(self, name: str) -> bool:
        """Return whether a folder of this name holds options."""
        if not name or "." in name:
            return False
        return any(
            os.path.isdir(folder / name) or any(Path(path).parent == folder / name for path in self.texts)
            for folder in self.folders
        )


@dataclass(frozen=True)
class Composed:
    """The tree before and after the overrides, the outcome of each, and where each key of the tree was read.

    `deprecated` are the keys that a comment in the files marks as deprecated, `once` those that a single file
    sets.
    """

    before: dict[str, Any]
    after: dict[str, Any]
    outcomes: tuple[Outcome, ...]
    origins: Mapping[str, str]
    choices: Mapping[str, str | None]
    deprecated: Mapping[str, str]
    once: frozenset[str]


def compose(
    sources: Sources, name: str, overrides: Sequence[Override], of_hydra: Mapping[str, str] | None = None
) -> Composed:
    """Compose the configuration `name`, and apply the overrides one after the other.

    `of_hydra` are options chosen for Hydra's own groups.

    Raises CompositionError if Hydra refuses the defaults list, and NotFollowedError. An override that Hydra
    refuses is skipped, with the reason in its outcome; an override that chooses a file of a group is
    "chosen".
    """
    groups = [index for index, override in enumerate(overrides) if _chooses(override, sources)]
    choices = _choices(overrides[index] for index in groups)
    choices.chosen |= of_hydra or {}
    known = sources.own is not None
    placed = Defaults(sources.load, choices, sources.has_group, without_plugins=known).expand(name)
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    again: set[str] = set()
    deprecated: dict[str, str] = {}
    for part in placed:
        file = sources.load(part.path)
        if file is None:
            continue
        content: Any = copy.deepcopy(file.content)
        for step in reversed(part.package.split(".") if part.package else []):
            content = {step: content}
        if isinstance(content, dict):
            merge(tree, content, tree)
        path = sources.paths.get(os.path.normpath(part.path), part.path)
        package = [part.package] if part.package else []
        for steps, line in file.lines.items():
            key = ".".join([*package, *steps])
            again |= {key} & origins.keys()
            origins[key] = f"{path}:{line}"
        for steps, comment in file.deprecated.items():
            deprecated[".".join([*package, *steps])] = comment
    before = copy.deepcopy(tree)
    outcomes: list[Outcome] = []
    for index, override in enumerate(overrides):
        outcomes.append("chosen" if index in groups else apply(tree, override))
    once = frozenset(origins.keys() - again)
    return Composed(before, tree, tuple(outcomes), origins, choices.known, deprecated, once)


def _chooses(override: Override, sources: Sources) -> bool:
    """Return whether it chooses an option of a group rather than a value."""
    return sources.has_group(override.key) and not isinstance(override.value, dict) and not override.several


def _choices(overrides: Iterable[Override]) -> Choices:
    choices = Choices()
    for override in overrides:
        key = override.key if override.package is None else f"{override.key}@{override.package}"
        value = override.value
        if override.sign == "++":
            raise CompositionError(f"`++{key}`: a group cannot be forced")
        if override.sign == "~":
            choices.deleted[key] = None if value is None else str(value)
        elif not isinstance(value, (str, list)):
            raise CompositionError(
                f"`{key}={value}`: `{key}` is a group of files, and this names none of them"
            )
        elif override.sign == "+":
            choices.appended.append(Entry(override.key, value, override.package))
        else:
            choices.chosen[key] = value
    return choices
