"""A step of the checklist: the imported verl contains the patches of the old tree."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.markers import Markers, markers_in
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.commands.checklist.checklist import NAMED, Invocation, Judgement
from verl_doctor.toolkit.comparison.meaning import complete
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.patchsets.patch_state import missing
from verl_doctor.toolkit.patchsets.patched import patched_files
from verl_doctor.toolkit.patchsets.patchset import AnyPatch
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.text import counted, listed


def judge_patches(
    old: Snapshot | None, run: Session, facts: Collection, arguments: str, invocation: Invocation
) -> list[Judgement]:
    """Judge whether the imported verl contains the patches of the old tree.

    `arguments` name the target in commands about the environment.
    """
    here, trees = facts.get(Markers), facts.get(VerlTrees)
    if isinstance(here, Unknown) or isinstance(trees, Unknown):
        return [Judgement("unknown", (here.reason if isinstance(here, Unknown) else "no verl was found",))]
    if old is not None:
        here = markers_in(here.folder, Marker(run.config.marker), _words(old))
    statement = Judgement(
        None, (*_marked(here), f"the imported verl is {trees.imported.folder}: {trees.why}")
    )
    if old is None:
        return [
            statement,
            Judgement(
                "unknown",
                ("only the old cluster can show whether these are all",),
                invocation.with_snapshot(),
            ),
        ]
    if old.patches is None:
        lacking = f"{old.path} does not record what was patched"
        return [statement, Judgement("unknown", (lacking,), invocation.with_snapshot())]
    return [statement, _patches_beside(old, old.patches, here, trees, run, arguments)]


def _patches_beside(
    old: Snapshot,
    wanted: Sequence[AnyPatch],
    here: Markers,
    trees: VerlTrees,
    run: Session,
    arguments: str,
) -> Judgement:
    """Search this tree for each patch of the old tree."""
    word = run.config.marker
    present = [patch for file in patched_files(here, word) for patch in file.patches]
    known = {patch.identity for patch in present}
    lost = [patch for patch in wanted if patch.identity not in known]
    fewer = list(_fewer(old, here, {patch.path for patch in lost}))
    if not lost and not fewer:
        return Judgement("done", (f"{counted(len(wanted), 'patch', 'patches')} of the old tree in place",))
    outer = next((tree for tree in trees.others if tree.outer), None)
    if outer is not None:
        copied = f"the imported verl is a copy of {outer.folder} inside itself"
        return Judgement("failed", (copied,), complete(_import(outer), run.target))
    lost_lines = [_lost_line(patch, here, present) for patch in lost]
    elsewhere = _other_tree_with(lost, trees.others, word)
    if elsewhere is not None:
        some = counted(len(lost), "patch", "patches")
        lost_lines = [f"{some} of the old tree in {elsewhere.folder}, which is not imported"]
    rest = (f"and {len(lost_lines) - NAMED} more",) if len(lost_lines) > NAMED else ()
    again = f"verl-doctor patches apply {shlex.quote(old.path)} --apply{arguments}"
    do = again if lost else f"verl-doctor patches list{arguments}"
    return Judgement("failed", (*lost_lines[:NAMED], *rest, *fewer), do)


def _lost_line(lost: AnyPatch, here: Markers, present: Sequence[AnyPatch]) -> str:
    state = missing(lost, Path(here.folder), present, "the command below")
    return f"# {lost.marker} {lost.place}: {state}"


def _words(old: Snapshot) -> set[str]:
    """Return the markers of the old tree, which mark the same patches here."""
    found = old.get(Markers)
    lines = () if isinstance(found, Unknown) else found.lines
    return {line.marker for line in lines} | {patch.marker for patch in old.patches or ()}


def _marked(here: Markers) -> list[str]:
    """Return the markers in a tree, ours and other people's."""
    words = Counter(line.marker for line in here.lines)
    if not words:
        return [f"no marked line in {here.folder}"]
    names = listed((f"# {word} ({number})" for word, number in words.most_common()), 6)
    return [f"{counted(len(here.lines), 'marked line')} in {here.folder}: {names}"]


def _fewer(old: Snapshot, here: Markers, shown: set[str]) -> Iterator[str]:
    """Yield lost marked lines that belong to no recorded patch, such as those without their old line."""
    was = old.get(Markers)
    if isinstance(was, Unknown):
        return
    before, after = _by_file(was), _by_file(here)
    for (path, word), number in before.items():
        left = after.get((path, word), 0)
        if left < number and path not in shown:
            yield f"{path}: {number - left} of {counted(number, 'line')} marked # {word} are missing"


def _by_file(found: Markers) -> Counter[tuple[str, str]]:
    return Counter((os.path.relpath(line.path, found.folder), line.marker) for line in found.lines)


def _other_tree_with(lost: list[AnyPatch], others: tuple[Tree, ...], word: str) -> Tree | None:
    """Return another tree that contains all of these patches but is not imported.

    A copy of a tree inside itself does not count.
    """
    wanted = {patch.identity for patch in lost}
    for tree in (tree for tree in others if not tree.nested):
        found = markers_in(tree.folder, Marker(word), (patch.marker for patch in lost))
        held = {patch.identity for file in patched_files(found, word) for patch in file.patches}
        if wanted and wanted <= held:
            return tree
    return None


def _import(tree: Tree) -> str:
    if tree.project:
        return f"pip install --no-deps -e {shlex.quote(tree.project)}  # makes it the one that is imported"
    return f"export PYTHONPATH={shlex.quote(str(Path(tree.folder).parent))}  # for every worker"
