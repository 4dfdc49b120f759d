"""What the old cluster's snapshot says of steps: the copy of the tree, the patches in it, and the environment."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.checklist import Said
from verl_doctor.toolkit.checklist_trials import steps_logged
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.compare import Difference, differences
from verl_doctor.toolkit.fact_markers import Markers, markers
from verl_doctor.toolkit.fact_tree_manifest import TreeManifest
from verl_doctor.toolkit.fact_trees import Tree, VerlTrees
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.patch_state import missing
from verl_doctor.toolkit.patched import patched_files
from verl_doctor.toolkit.patchset import Patch
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.snapshot import Snapshot, taken
from verl_doctor.toolkit.text import counted, listed
from verl_doctor.toolkit.tree_compare import HARMLESS, Damage, alone, compare

WITHOUT = (
    "on the old cluster: verl-doctor snapshot OLD.json; then here: verl-doctor checklist --from OLD.json"
)
_NAMED = 12  # files, patches or differences


def tree_said(old: Snapshot | None, facts: Collection) -> list[Said]:
    """Whether every file of the original is there as it was."""
    new = facts.get(TreeManifest)
    if isinstance(new, Unknown):
        return [Said("unknown", (new.reason,))]
    if old is None:
        return _tree_alone(new)
    was = old.get(TreeManifest)
    if isinstance(was, Unknown):
        return [Said("unknown", (f"{old.path} does not say what the tree held: {was.reason}",), WITHOUT)]
    try:
        found = compare(was, new)
    except ValueError:
        return [Said("unknown", (f"the list of files in {old.path} is damaged",), WITHOUT)]
    bad = [one for one in found if one.fault not in HARMLESS]
    more = sum(one.count for one in found if one.fault in HARMLESS)
    beside = (f"{counted(more, 'file')} that the original lacks, which no job imports",) if more else ()
    whole = f"{counted(len(was.lines), 'file')} of {_host(old)}{was.folder} compared with {new.folder}"
    if bad:
        return [Said("failed", (*_shown(bad), whole, *beside), _mend(bad, old, was, new))]
    return [Said("done", (f"{whole}: all are there as they were", *beside))]


def _tree_alone(new: TreeManifest) -> list[Said]:
    if bad := alone(new):
        return [Said("failed", tuple(_shown(bad)), _mend(bad, None, None, new))]
    if new.installed:
        return [
            Said(None, (f"{new.folder} was installed from a wheel, whose list of files the rules compare",))
        ]
    said = f"{counted(len(new.lines), 'file')} in {new.folder}; whether that is all of it only the old cluster can tell"
    return [Said("unknown", (said,), WITHOUT)]


def _shown(found: list[Damage]) -> Iterator[str]:
    for one in found[:_NAMED]:
        number = (
            f" ({counted(one.count, 'file')})"
            if one.path.endswith("/") and str(one.count) not in one.said
            else ""
        )
        yield f"{one.fault}: {one.path}" + (f", {one.said}" if one.said else "") + number
    if len(found) > _NAMED:
        rest = Counter(one.fault for one in found[_NAMED:])
        yield "and " + ", ".join(f"{number} more {fault}" for fault, number in rest.items())


def _mend(bad: list[Damage], old: Snapshot | None, was: TreeManifest | None, new: TreeManifest) -> str:
    """The one command that helps against the worst of it."""
    first = bad[0]
    if first.fault == "nested":
        return (
            f"rm -r {shlex.quote(str(Path(new.folder, first.path)))}  # once you have seen that it is a copy"
        )
    if all(one.fault == "pointer" for one in bad):
        return f"git -C {shlex.quote(new.folder)} lfs pull"
    if all(one.fault in ("extra source", "half copied") for one in bad):
        return (
            f"rm {shlex.quote(str(Path(new.folder, first.path)))}  # once you have seen that nobody needs it"
        )
    origin = f"{_host(old)}{was.folder}" if was else "OLD"
    # Without the slashes the tree would land inside itself.
    return f"rsync -a --checksum --exclude verl-doctor.toml {shlex.quote(f'{origin}/')} {shlex.quote(f'{new.folder}/')}"


def _host(old: Snapshot | None) -> str:
    return f"{old.machine}:" if old and old.machine else ""


def patches_said(old: Snapshot | None, run: Session, facts: Collection, arguments: str) -> list[Said]:
    """Whether the patches of the old tree stand in the one that is imported."""
    here, trees = facts.get(Markers), facts.get(VerlTrees)
    if isinstance(here, Unknown):
        return [Said("unknown", (here.reason,))]
    imported = [] if isinstance(trees, Unknown) else [f"imported is {trees.imported.folder}: {trees.why}"]
    said = Said(None, (*_marked(here), *imported))
    if old is None:
        return [said, Said("unknown", ("whether these are all, only the old cluster can tell",), WITHOUT)]
    if old.patches is None:
        return [said, Said("unknown", (f"{old.path} does not say what was patched",), WITHOUT)]
    present = [patch for file in patched_files(here, run.config.marker) for patch in file.patches]
    known = {patch.identity for patch in present}
    lost = [patch for patch in old.patches if patch.identity not in known]
    fewer = list(_fewer(old, here, {patch.path for patch in lost}))
    if not lost and not fewer:
        return [
            said,
            Said("done", (f"{counted(len(old.patches), 'patch', 'patches')} of the old tree in place",)),
        ]
    again = f"verl-doctor patches apply {shlex.quote(old.path)} --apply{arguments}"
    others = () if isinstance(trees, Unknown) else trees.others
    elsewhere = _other_tree_with(lost, others, run.config.marker)
    if elsewhere is not None and not isinstance(trees, Unknown):
        sentence = f"{counted(len(lost), 'patch', 'patches')} of the old tree stand in {elsewhere.folder}, which is not imported"
        return [said, Said("failed", (sentence,), _import(elsewhere))]
    told = [
        f"{one.marker} {one.place}: {missing(one, Path(here.folder), present, 'the command below')}"
        for one in lost
    ]
    sentences = (*told[:_NAMED], *([f"and {len(told) - _NAMED} more"] if len(told) > _NAMED else []), *fewer)
    return [said, Said("failed", sentences, again if lost else f"verl-doctor patches list{arguments}")]


def _marked(here: Markers) -> list[str]:
    """The markers in a tree, ours and other people's."""
    words = Counter(line.marker for line in here.lines)
    if not words:
        return [f"no marked line in {here.folder}"]
    said = listed((f"# {word} ({number})" for word, number in words.most_common()), 6)
    return [f"{counted(len(here.lines), 'marked line')} in {here.folder}: {said}"]


def _fewer(old: Snapshot, here: Markers, told: set[str]) -> Iterator[str]:
    """Marked lines that no patch tells of, as those whose old line was not kept, and that are gone."""
    was = old.get(Markers)
    if isinstance(was, Unknown):
        return
    before, after = _by_file(was), _by_file(here)
    for (path, word), number in before.items():
        left = after.get((path, word), 0)
        if left < number and path not in told:
            yield f"{path}: {number - left} of {counted(number, 'line')} marked # {word} are gone"


def _by_file(found: Markers) -> Counter[tuple[str, str]]:
    return Counter((os.path.relpath(line.path, found.folder), line.marker) for line in found.lines)


def _other_tree_with(lost: list[Patch], others: tuple[Tree, ...], word: str) -> Tree | None:
    """A tree that holds all of these patches and is not imported."""
    wanted = {patch.identity for patch in lost}
    for tree in others:
        found = markers.collect(VerlTrees(tree, ""), Marker(word))
        held = {patch.identity for file in patched_files(found, word) for patch in file.patches}
        if wanted and wanted <= held:
            return tree
    return None


def _import(tree: Tree) -> str:
    if tree.project:
        return f"pip install --no-deps -e {shlex.quote(tree.project)}  # makes it the one that is imported"
    return f"export PYTHONPATH={shlex.quote(str(Path(tree.folder).parent))}  # for every worker"


def environment_said(old: Snapshot | None, run: Session, facts: Collection, log: Path | None) -> list[Said]:
    """What differs from the old cluster. What may matter is settled by a run in which a step was logged in spite of it."""
    if old is None:
        return [Said("unknown", ("what was otherwise only the old cluster can tell",), WITHOUT)]
    found = differences(old, taken(run, facts))
    breaks = [one for one in found if one.weight == "breaks"]
    matters = [one for one in found if one.weight == "matters"]
    noise = len(found) - len(breaks) - len(matters)
    rest = (f"{counted(noise, 'difference')} without consequence",) if noise else ()
    do = f"verl-doctor compare {shlex.quote(old.path)}"
    if breaks:
        return [Said("failed", (*_differing(breaks), *_differing(matters), *rest), breaks[0].next or do)]
    if not matters:
        return [Said("done", ("nothing that matters is otherwise", *rest))]
    sentences = (*_differing(matters), *rest)
    if logged := steps_logged(run, facts, log):
        return [
            Said(
                "done",
                (f"{logged}, with {counted(len(matters), 'difference')} that might matter", *sentences),
            )
        ]
    settled = "a DEBUG run that logs a step shows that they do no harm"
    return [Said("open", (*sentences, settled), matters[0].next or do)]


def _differing(found: list[Difference]) -> Iterator[str]:
    for one in found[:_NAMED]:
        name = one.subject if one.kind in ("", one.subject) else f"{one.kind} {one.subject}"
        nodes = f" on {one.nodes}" if one.nodes else ""
        yield f"{name}: {one.old or 'none'} -> {one.new or 'none'}{nodes}"
    if len(found) > _NAMED:
        yield f"and {counted(len(found) - _NAMED, 'more difference')}"
