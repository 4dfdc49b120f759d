"""Which differences follow from another release of verl, rather than from what the user changed."""

from __future__ import annotations

import contextlib

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.comparison.job_values import leaves
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.snapshot.snapshot import Snapshot


def trees_of_two(old: Facts, new: Facts) -> tuple[Tree, Tree] | None:
    """Return verl's old and new tree, None if they are of one release, or one is unknown.

    The local part of a version, as in 0.9.1+cpu, names a build of the release.
    """
    was, now = old.get(VerlTrees), new.get(VerlTrees)
    if isinstance(was, Unknown) or isinstance(now, Unknown):
        return None
    versions = public(was.imported.version), public(now.imported.version)
    return (was.imported, now.imported) if all(versions) and versions[0] != versions[1] else None


def public(version: str) -> str:
    """Return a version without its local part, as the package index and tags have it."""
    with contextlib.suppress(InvalidVersion):
        return Version(version).public
    return version


def of_verl(old: Facts, new: Facts) -> tuple[str, str] | None:
    """Return verl's old and new release, None if they are equal or one is unknown."""
    trees = trees_of_two(old, new)
    return (trees[0].version, trees[1].version) if trees else None


def settings_of_one(old: Snapshot, new: Snapshot) -> frozenset[str]:
    """Return the keys that one release of verl has and the other lacks.

    A key that only one launch script sets is the user's.
    """
    was, now = old.get(Configuration), new.get(Configuration)
    if of_verl(old, new) is None or isinstance(was, Unknown) or isinstance(now, Unknown):
        return frozenset()
    before, after = ({key for key, _ in leaves(side.after, "")} for side in (was, now))
    set_before, set_after = ({word.key for word in side.overrides} for side in (was, now))
    return frozenset((before ^ after) - (set_before ^ set_after))
