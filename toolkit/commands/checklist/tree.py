"""A step of the checklist: the tree was copied completely, file by file.

It is compared with the old cluster's snapshot.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.collectors.packages.tree_manifest import TreeManifest
from verl_doctor.toolkit.commands.checklist.checklist import NAMED, Invocation, Judgement
from verl_doctor.toolkit.commands.checklist.other_release import judge_other_release, origin
from verl_doctor.toolkit.commands.checklist.tree_compare import HARMLESS, Damage, alone, compare
from verl_doctor.toolkit.commands.checklist.trials import steps_logged
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.repair.recorded import history
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.text import counted, listed


def judge_tree(
    old: Snapshot | None, run: Session, facts: Collection, log: Path | None, invocation: Invocation
) -> list[Judgement]:
    """Judge whether every file of the original exists unchanged.

    Changes by verl-doctor and a proven launch script are excepted.
    """
    new = facts.get(TreeManifest)
    if isinstance(new, Unknown):
        return [Judgement("unknown", (new.reason,))]
    if old is None:
        return _tree_alone(new, invocation)
    was = old.get(TreeManifest)
    if isinstance(was, Unknown):
        lacking = f"{old.path} does not record the contents of the tree: {was.reason}"
        return [Judgement("unknown", (lacking,), invocation.with_snapshot())]
    if (other := judge_other_release(old, run, facts, log)) is not None:
        # What an interrupted copy leaves is damage of any release, listed or not.
        bad = alone(new)
        return [*([Judgement("failed", tuple(_shown(bad)), _mend(bad, "OLD", new))] if bad else []), other]
    ours, scripts = _changed_by_us(run, new), _below(map(str, run.target.files), new)
    found = compare(was, new, ours)
    bad = [damage for damage in found if damage.fault not in HARMLESS and not _is_edited(damage, scripts)]
    edited = [damage for damage in found if _is_edited(damage, scripts)]
    more = sum(damage.count for damage in found if damage.fault in HARMLESS)
    beside = (
        *((f"changed by verl-doctor: {listed(sorted(ours), 4)}",) if ours else ()),
        *((f"{counted(more, 'file')} not in the original, which no job imports",) if more else ()),
    )
    whole = f"{counted(len(was.lines), 'file')} of {origin(old, was)} compared with {new.folder}"
    statements = []
    if edited:
        statements.append(_edited(edited, run, facts, log))
    if bad:
        return [
            *statements,
            Judgement("failed", (*_shown(bad), whole, *beside), _mend(bad, origin(old, was), new)),
        ]
    rest = "the others" if edited else "all"
    return [*statements, Judgement("done", (f"{whole}: {rest} are unchanged", *beside))]


def _changed_by_us(run: Session, new: TreeManifest) -> frozenset[str]:
    """Return the files changed by repairs on this machine that are still in place."""
    changes = (
        change
        for recorded in history(run.target, run.machine).changes
        for change in recorded.transaction.changes
    )
    return _below((path for change in changes if change.standing == "in place" for path in change.paths), new)


def _below(paths: Iterable[str], new: TreeManifest) -> frozenset[str]:
    top = os.path.realpath(new.folder)
    real = (os.path.realpath(path) for path in paths)
    return frozenset(os.path.relpath(path, top) for path in real if Path(path).is_relative_to(top))


def _is_edited(damage: Damage, scripts: frozenset[str]) -> bool:
    """Return whether the difference is in the launch script, which often has to differ on another cluster."""
    return damage.path in scripts and damage.fault in ("different", "shorter")


def _edited(scripts: list[Damage], run: Session, facts: Collection, log: Path | None) -> Judgement:
    named = (
        ", ".join(f"{script.path}{script.detail and f' ({script.detail})'}" for script in scripts)
        + " differs from the original"
    )
    if logged := steps_logged(run, facts, log):
        return Judgement("done", (f"{named}; it works as it is: {logged}",))
    return Judgement("open", (f"{named}; a DEBUG run that logs a step shows that this is intended",))


def _tree_alone(new: TreeManifest, invocation: Invocation) -> list[Judgement]:
    if bad := alone(new):
        return [Judgement("failed", tuple(_shown(bad)), _mend(bad, "OLD", new))]
    if new.installed:
        return [
            Judgement(
                None, (f"{new.folder} was installed from a wheel, whose list of files the rules compare",)
            )
        ]
    sentence = (
        f"{counted(len(new.lines), 'file')} in {new.folder}; only the old cluster can show whether that is "
        "all"
    )
    return [Judgement("unknown", (sentence,), invocation.with_snapshot())]


def _shown(found: list[Damage]) -> Iterator[str]:
    for damage in found[:NAMED]:
        number = (
            f" ({counted(damage.count, 'file')})"
            if damage.path.endswith("/") and str(damage.count) not in damage.detail
            else ""
        )
        yield f"{damage.fault}: {damage.path}" + (f", {damage.detail}" if damage.detail else "") + number
    if len(found) > NAMED:
        rest = Counter(damage.fault for damage in found[NAMED:])
        yield "and " + ", ".join(f"{number} more {fault}" for fault, number in rest.items())


def _mend(bad: list[Damage], original: str, new: TreeManifest) -> str:
    """Return the command that repairs the worst damage."""
    first = bad[0]
    if first.fault == "nested":
        return (
            f"rm -r {shlex.quote(str(Path(new.folder, first.path)))}  # once you have verified that it is a "
            "copy"
        )
    if all(damage.fault == "pointer" for damage in bad):
        return f"git -C {shlex.quote(new.folder)} lfs pull"
    if all(damage.fault in ("extra source", "half copied") for damage in bad):
        return (
            f"rm {shlex.quote(str(Path(new.folder, first.path)))}  # once you have verified that nothing "
            "needs it"
        )
    # Without the slashes the tree would land inside itself.
    return (
        f"rsync -a --checksum --exclude verl-doctor.toml {shlex.quote(f'{original}/')} "
        f"{shlex.quote(f'{new.folder}/')}"
    )
