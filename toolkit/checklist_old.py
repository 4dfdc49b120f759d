"""What the old cluster's snapshot says of steps: the copy of the tree, the patches in it, and the environment."""

from __future__ import annotations

import os
import platform
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

from verl_doctor.toolkit.checklist import Said
from verl_doctor.toolkit.checklist_trials import steps_logged
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.compare import Difference
from verl_doctor.toolkit.compare_judge import compared
from verl_doctor.toolkit.fact_markers import Markers, markers_in
from verl_doctor.toolkit.fact_tree_manifest import TreeManifest
from verl_doctor.toolkit.fact_trees import Tree, VerlTrees
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.fleet_names import plain
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.patch_state import missing
from verl_doctor.toolkit.patched import patched_files
from verl_doctor.toolkit.patchset import Patch
from verl_doctor.toolkit.recorded import history
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.snapshot import Snapshot, taken
from verl_doctor.toolkit.text import counted, listed
from verl_doctor.toolkit.tree_compare import HARMLESS, Damage, alone, compare

WITHOUT = (
    "on the old cluster: verl-doctor snapshot OLD.json; then here: verl-doctor checklist --from OLD.json"
)
_OF_OTHER_STEPS = frozenset({"patch", "marker", "file", "content"})
_NAMED = 12  # files, patches or differences


def tree_said(old: Snapshot | None, run: Session, facts: Collection, log: Path | None) -> list[Said]:
    """Whether every file of the original is there as it was, or as verl-doctor or a proven launch script has it."""
    new = facts.get(TreeManifest)
    if isinstance(new, Unknown):
        return [Said("unknown", (new.reason,))]
    if old is None:
        return _tree_alone(new)
    was = old.get(TreeManifest)
    if isinstance(was, Unknown):
        return [Said("unknown", (f"{old.path} does not say what the tree held: {was.reason}",), WITHOUT)]
    ours, scripts = _changed_by_us(run, new), _below(map(str, run.target.files), new)
    try:
        found = compare(was, new, ours)
    except ValueError:
        return [Said("unknown", (f"the list of files in {old.path} is damaged",), WITHOUT)]
    bad = [one for one in found if one.fault not in HARMLESS and not _is_edited(one, scripts)]
    edited = [one.path for one in found if _is_edited(one, scripts)]
    more = sum(one.count for one in found if one.fault in HARMLESS)
    beside = (
        *((f"changed by verl-doctor: {listed(sorted(ours), 4)}",) if ours else ()),
        *((f"{counted(more, 'file')} that the original lacks, which no job imports",) if more else ()),
    )
    whole = f"{counted(len(was.lines), 'file')} of {_origin(old, was)} compared with {new.folder}"
    said = []
    if edited:
        said.append(_edited(edited, run, facts, log))
    if bad:
        return [*said, Said("failed", (*_shown(bad), whole, *beside), _mend(bad, _origin(old, was), new))]
    rest = "the others" if edited else "all"
    return [*said, Said("done", (f"{whole}: {rest} are there as they were", *beside))]


def _changed_by_us(run: Session, new: TreeManifest) -> frozenset[str]:
    """The files that repairs on this machine have changed and that are still so."""
    changes = (
        change for one in history(run.target, run.machine).changes for change in one.transaction.changes
    )
    return _below((path for change in changes if change.now == "in place" for path in change.paths), new)


def _below(paths: Iterable[str], new: TreeManifest) -> frozenset[str]:
    return frozenset(
        os.path.relpath(path, new.folder) for path in paths if Path(path).is_relative_to(new.folder)
    )


def _is_edited(one: Damage, scripts: frozenset[str]) -> bool:
    """Whether it is the launch script that differs, which another cluster often wants otherwise."""
    return one.path in scripts and one.fault in ("different", "cut off")


def _edited(paths: list[str], run: Session, facts: Collection, log: Path | None) -> Said:
    named = f"{', '.join(paths)} differs from the original"
    if logged := steps_logged(run, facts, log):
        return Said("done", (f"{named}; it is proven as it is: {logged}",))
    return Said("open", (f"{named}; a DEBUG run that logs a step shows that it is meant so",))


def _tree_alone(new: TreeManifest) -> list[Said]:
    if bad := alone(new):
        return [Said("failed", tuple(_shown(bad)), _mend(bad, "OLD", new))]
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


def _mend(bad: list[Damage], origin: str, new: TreeManifest) -> str:
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
    # Without the slashes the tree would land inside itself.
    return f"rsync -a --checksum --exclude verl-doctor.toml {shlex.quote(f'{origin}/')} {shlex.quote(f'{new.folder}/')}"


def _origin(old: Snapshot, was: TreeManifest) -> str:
    """The old tree, as rsync names it."""
    host = f"{old.machine}:" if old.machine and old.machine != plain(platform.node()) else ""
    return f"{host}{was.folder}"


def patches_said(old: Snapshot | None, run: Session, facts: Collection, arguments: str) -> list[Said]:
    """Whether the patches of the old tree stand in the one that is imported."""
    here, trees = facts.get(Markers), facts.get(VerlTrees)
    if isinstance(here, Unknown) or isinstance(trees, Unknown):
        return [Said("unknown", (here.reason if isinstance(here, Unknown) else "no verl was found",))]
    if old is not None:
        here = markers_in(here.folder, Marker(run.config.marker), _words(old))
    said = Said(None, (*_marked(here), f"imported is {trees.imported.folder}: {trees.why}"))
    if old is None:
        return [said, Said("unknown", ("whether these are all, only the old cluster can tell",), WITHOUT)]
    if old.patches is None:
        return [said, Said("unknown", (f"{old.path} does not say what was patched",), WITHOUT)]
    return [said, _patches_beside(old, old.patches, here, trees, run.config.marker, arguments)]


def _patches_beside(
    old: Snapshot, wanted: Sequence[Patch], here: Markers, trees: VerlTrees, word: str, arguments: str
) -> Said:
    """Each patch of the old tree looked for in this one."""
    present = [patch for file in patched_files(here, word) for patch in file.patches]
    known = {patch.identity for patch in present}
    lost = [patch for patch in wanted if patch.identity not in known]
    fewer = list(_fewer(old, here, {patch.path for patch in lost}))
    if not lost and not fewer:
        return Said("done", (f"{counted(len(wanted), 'patch', 'patches')} of the old tree in place",))
    elsewhere = _other_tree_with(lost, trees.others, word)
    if elsewhere is not None:
        some = counted(len(lost), "patch", "patches")
        return Said(
            "failed",
            (f"{some} of the old tree in {elsewhere.folder}, which is not imported",),
            _import(elsewhere),
        )
    told = [_told(one, here, present) for one in lost]
    rest = (f"and {len(told) - _NAMED} more",) if len(told) > _NAMED else ()
    again = f"verl-doctor patches apply {shlex.quote(old.path)} --apply{arguments}"
    do = again if lost else f"verl-doctor patches list{arguments}"
    return Said("failed", (*told[:_NAMED], *rest, *fewer), do)


def _told(lost: Patch, here: Markers, present: Sequence[Patch]) -> str:
    state = missing(lost, Path(here.folder), present, "the command below")
    return f"# {lost.marker} {lost.place}: {state}"


def _words(old: Snapshot) -> set[str]:
    """The markers of the old tree: what marked a patch there marks it here."""
    found = old.get(Markers)
    lines = () if isinstance(found, Unknown) else found.lines
    return {line.marker for line in lines} | {patch.marker for patch in old.patches or ()}


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
        found = markers_in(tree.folder, Marker(word), (patch.marker for patch in lost))
        held = {patch.identity for file in patched_files(found, word) for patch in file.patches}
        if wanted and wanted <= held:
            return tree
    return None


def _import(tree: Tree) -> str:
    if tree.project:
        return f"pip install --no-deps -e {shlex.quote(tree.project)}  # makes it the one that is imported"
    return f"export PYTHONPATH={shlex.quote(str(Path(tree.folder).parent))}  # for every worker"


def environment_said(
    old: Snapshot | None, run: Session, facts: Collection, log: Path | None, judged: Container[str]
) -> list[Said]:
    """What differs from the old cluster. What may matter is settled by a run in which a step was logged in spite of it.

    What rules say that other steps are `judged` by is not said again.
    """
    if old is None:
        return [Said("unknown", ("what was otherwise only the old cluster can tell",), WITHOUT)]
    found = compared(old, taken(run, facts), run)
    breaks, matters = (
        [one for one in found.of(weight) if not _is_told_elsewhere(one, judged)]
        for weight in ("breaks", "matters")
    )
    noise = len(found.of("noise"))
    rest = (f"{counted(noise, 'difference')} without consequence",) if noise else ()
    do = f"verl-doctor compare {shlex.quote(old.path)}"
    if breaks:
        return [Said("failed", (*_differing(breaks), *_differing(matters), *rest), breaks[0].next or do)]
    lost = tuple(f"not compared: {sentence}" for sentence in found.lost)
    if lost:
        return [Said("unknown", (*lost, *_differing(matters), *rest), do)]
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


def _is_told_elsewhere(one: Difference, judged: Container[str]) -> bool:
    """Whether another step is about it: the patches, the paths, the tree."""
    return one.kind in _OF_OTHER_STEPS or (bool(one.codes) and all(code in judged for code in one.codes))


def _differing(found: Sequence[Difference]) -> Iterator[str]:
    for one in found[:_NAMED]:
        name = one.subject if one.kind in ("", one.subject) else f"{one.kind} {one.subject}"
        nodes = f" on {one.nodes}" if one.nodes else ""
        why = f" ({', '.join(one.codes)}: {one.why})" if one.codes else ""
        yield f"{name}: {one.old or 'none'} -> {one.new or 'none'}{nodes}{why}"
    if len(found) > _NAMED:
        yield f"and {counted(len(found) - _NAMED, 'more difference')}"
