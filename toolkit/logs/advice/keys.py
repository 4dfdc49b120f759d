"""Advice on a key that verl's configuration lacks: the releases that have it, and its name in the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from packaging.version import Version

from verl_doctor.toolkit.sources.hydra.verl_keys import PPO, Rename, releases, renames

UNKNOWN = "CFG101"
"""The code of such a key."""
# Sections whose keys verl passes on without having them in its own configuration.
_FREE = (".engine_kwargs.", ".override_config.", ".override_transformer_config.", ".override_ddp_config.")


def unknown(key: str) -> str:
    """Return which releases of verl have a key that the running one lacks, and what to set instead.

    "" if verl's history does not show the key.
    """
    if any(section in key for section in _FREE):
        return f"verl leaves this section to the user: write +{key}="
    came, went = _last("added", key), _last("removed", key)
    other = next((rename.old for rename in _renames() if rename.new == key), "")
    if went and (not came or Version(came) < Version(went)):
        new = _new_names(key)
        instead = f"set {new}" if new else "leave it out"
        return (
            f"verl has {key} no longer from {_plain(went)} on: {instead}, or run the verl for which the "
            "script was written"
        )
    if came:
        instead = f"use {other} with the one that runs" if other else "leave it out"
        return f"verl has {key} from {_plain(came)} on: pip install 'verl>={_plain(came)}', or {instead}"
    return ""


def _new_names(key: str) -> str:
    """Return what a key is called instead, in each release that renamed it again.

    Also what else is different; "" if the key was not renamed.
    """
    name = key
    names: list[str] = []
    notes: list[str] = []
    for rename in _renames():
        if new := rename.renamed(name):
            name = new
            names.append(f"from {rename.release} on {name}" if names else f"{name} instead")
            notes += [rename.note] if rename.note else []
    return ", ".join(names) + (f" ({'; '.join(notes)})" if notes else "")


def _renames() -> Iterator[Rename]:
    return (rename for rename in renames() if rename.tree == PPO)


def _last(change: Literal["added", "removed"], key: str) -> str:
    """Return the last release that added, or removed, a key or a section above it; "" for none."""
    return next(reversed(releases(change, key)), "")


def _plain(release: str) -> str:
    """Return a release without what was published again of it."""
    return release.partition(".post")[0]
