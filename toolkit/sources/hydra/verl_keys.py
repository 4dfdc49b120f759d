"""The history of verl's configuration keys, as each release's files have it.

It covers keys that came and went, and keys that were renamed.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PPO = "ppo_trainer"


@dataclass(frozen=True)
class Rename:
    """`old`, with everything below it, is called `new` from a release on.

    `tree` is the configuration that had the old name.
    """

    old: str
    new: str
    release: str
    note: str = ""
    tree: str = PPO

    def renamed(self, key: str) -> str:
        """Return what a key is called afterwards; "" if this concerns other keys."""
        return self.new + key.removeprefix(self.old) if _is_at_or_below(key, self.old) else ""


@functools.cache
def renames() -> tuple[Rename, ...]:
    """Return all known renames, the oldest first."""
    return tuple(Rename(**entry) for entry in json.loads(_text("verl_key_renames.json"))["renamed"])


@functools.cache
def table() -> Mapping[str, Mapping[str, list[str]]]:
    """Return which keys each release of verl added and removed, the oldest release first."""
    found: Mapping[str, Mapping[str, list[str]]] = json.loads(_text("verl_keys.json"))
    return found


def releases(change: Literal["added", "removed"], key: str) -> tuple[str, ...]:
    """Return the releases that added, or removed, a key or a section above it, the oldest first."""
    return tuple(
        release
        for release, keys in table()[change].items()
        if any(_is_at_or_below(key, other) for other in keys)
    )


def _is_at_or_below(key: str, other: str) -> bool:
    return key == other or key.startswith(f"{other}.")


def _text(name: str) -> str:
    return (importlib.resources.files("verl_doctor.toolkit") / "data" / name).read_text("utf-8")
