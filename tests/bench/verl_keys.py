"""In which release of verl each configuration key came and went: `toolkit/data/verl_keys.json`, which `refresh.py` writes.

A test makes the table anew from the wheels and compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from verl_doctor.toolkit.sources.hydra.compose import Sources, compose

PRIMARY = ("ppo_trainer", "ppo_megatron_trainer")
OLDEST = Version("0.2.0.post2")
"""The release with which the table begins."""


def keys(verl: Path) -> set[str]:
    """All dotted keys of PPO's configurations in a package folder."""
    folder = verl / "trainer" / "config"
    names = [name for name in PRIMARY if (folder / f"{name}.yaml").is_file()]
    return {key for name in names for key in _keys(compose(Sources([folder]), name, []).after, "")}


def table(trees: Mapping[str, Path]) -> dict[str, Any]:
    """What each release added and removed; of a section only its own name."""
    ordered = sorted(trees, key=Version)
    added: dict[str, list[str]] = {}
    removed: dict[str, list[str]] = {}
    before = keys(trees[ordered[0]])
    for release in ordered[1:]:
        now = keys(trees[release])
        added[release] = _outermost(now - before)
        removed[release] = _outermost(before - now)
        before = now
    return {"first": ordered[0], "last": ordered[-1], "added": added, "removed": removed}


def _keys(tree: Mapping[str, Any], above: str) -> Iterator[str]:
    for name, value in tree.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{name}.")


def _outermost(found: set[str]) -> list[str]:
    return sorted(key for key in found if key.rpartition(".")[0] not in found)
