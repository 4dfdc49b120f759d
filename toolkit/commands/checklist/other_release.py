"""Judge a verl tree whose release is not that of the old cluster: its files differ without any damage."""

from __future__ import annotations

import os
import platform
import shlex
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.checkout import Checkout
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.packages.records import PackageRecord, Records
from verl_doctor.toolkit.collectors.packages.tree_manifest import TreeManifest, top_of
from verl_doctor.toolkit.commands.checklist.checklist import Judgement
from verl_doctor.toolkit.commands.checklist.trials import steps_logged
from verl_doctor.toolkit.comparison import meaning
from verl_doctor.toolkit.comparison.releases import public, trees_of_two
from verl_doctor.toolkit.engine.collect import Collection, Facts
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.system.node_names import plain
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.text import counted


def judge_other_release(old: Snapshot, run: Session, facts: Collection, log: Path | None) -> Judgement | None:
    """Judge the tree by its own list of files; None if its release is the old one, or one is unknown."""
    trees = trees_of_two(old, facts)
    if trees is None:
        return None
    was, now = trees
    both = f"verl {now.version} is installed here, {was.version} where the job worked"
    do = _way_to(was, now, old, run.target)
    if lost := _lost(now, facts):
        missing = (
            f"{counted(lost, 'file')} of verl {now.version} {'is' if lost == 1 else 'are'} missing or empty"
        )
        again = meaning.complete(meaning.install("verl", public(now.version), ""), run.target)
        return Judgement("failed", (both, missing), do or again)
    intact = [tree.version for tree in (now, was) if _is_intact(tree, facts if tree is now else old)]
    if now.place == "site-packages" and _record(now, facts) is None:
        both += f"; no list of files shows whether {now.version} is complete"
    if intact:
        both += "; both are intact" if len(intact) == 2 else f"; {intact[0]} is intact"
    if logged := steps_logged(run, facts, log):
        return Judgement("done", (both, f"the job works with {now.version}: {logged}"))
    settled = f"a DEBUG run that logs a step shows that the job works with {now.version}"
    return Judgement("open", (both, settled), do)


def _lost(tree: Tree, facts: Facts) -> int:
    """Return how many files of the wheel a job would miss."""
    records = facts.get(Records)
    if isinstance(records, Unknown) or tree.place != "site-packages":
        return 0
    return sum(drift.lost for drift in records.drifts if drift.package == "verl")


def _is_intact(tree: Tree, facts: Facts) -> bool:
    """Return whether all files are as the wheel brought them; False if no wheel shows it."""
    record = _record(tree, facts)
    return record is not None and not (record.missing or record.changed or record.unread or record.problem)


def _record(tree: Tree, facts: Facts) -> PackageRecord | None:
    """Return the comparison of a tree with the list of files that its wheel brought; None without a list."""
    records = facts.get(Records)
    if isinstance(records, Unknown) or tree.place != "site-packages":
        return None
    return next((record for record in records.packages if record.package == "verl" and record.files), None)


def _way_to(was: Tree, now: Tree, old: Snapshot, target: Target) -> str:
    """Return the command that brings the old release: pip's, or the checkout's; "" after an upgrade."""
    install = meaning.install("verl", public(was.version), public(now.version))
    if not install:
        return ""
    top = top_of(now)
    if os.path.exists(top / ".git"):
        checkout = old.get(Checkout)
        revision = f"v{public(was.version)}" if isinstance(checkout, Unknown) else checkout.commit
        return f"git -C {shlex.quote(str(top))} checkout {shlex.quote(revision)}"
    if was.place == "site-packages":
        return meaning.complete(install, target)
    manifest = old.get(TreeManifest)
    folder = was.folder if isinstance(manifest, Unknown) else origin(old, manifest)
    copy = f"rsync -a {shlex.quote(f'{folder}/')} FOLDER/"
    if target.verl is not None:
        return f"{copy}  # FOLDER: a new one, to be named with --verl"
    return f"{copy} && {meaning.complete('pip install --no-deps -e FOLDER', target)}  # FOLDER: a new one"


def origin(old: Snapshot, was: TreeManifest) -> str:
    """Return the old tree, as rsync names it."""
    host = f"{old.machine}:" if old.machine and old.machine != plain(platform.node()) else ""
    return f"{host}{was.folder}"
