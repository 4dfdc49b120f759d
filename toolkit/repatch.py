"""Bringing patches that are carried as data into a source tree: the changes, or why one has no place there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit import patchset
from verl_doctor.toolkit.change import ReplaceFile
from verl_doctor.toolkit.patch_state import source_of
from verl_doctor.toolkit.patchset import NoPlace, Patch
from verl_doctor.toolkit.py_edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.py_unbound import unbound


def changes(waiting: Iterable[Patch], folder: Path, states: dict[Patch, str]) -> Iterator[ReplaceFile]:
    """The changes that bring patches into the tree in `folder`; those that have no place there get their state."""
    by_path: dict[str, list[Patch]] = {}
    for patch in waiting:
        by_path.setdefault(patch.path, []).append(patch)
    for name, fitting in by_path.items():
        path = folder / name
        source = source_of(name, folder)
        if isinstance(source, str):
            states.update(dict.fromkeys(fitting, f"refused: {source}"))
            continue
        before = source.to_bytes(source.text)
        try:
            after = _patched(source, fitting, states)
        except CannotEdit as reason:
            states.update(dict.fromkeys(fitting, f"refused: {reason}"))
            continue
        if after != before:
            yield ReplaceFile(path, before, after)


def _patched(source: SourceText, fitting: Iterable[Patch], states: dict[Patch, str]) -> bytes:
    """All places are found in the source as it is; then the last edit comes first, so that the others stay where they are.

    A patch that reads a name which nothing binds here is refused: the same statement may stand in another function.
    """
    edits: list[tuple[Edit, Patch]] = []
    for patch in fitting:
        edit = patchset.edit_for(patch, source)
        if isinstance(edit, NoPlace):
            states[patch] = f"refused: {edit.reason}"
        else:
            edits.append((edit, patch))
    known = unbound(source.tree, source.text)
    while True:
        after = source.to_bytes(source.text)
        for edit, patch in sorted(edits, key=lambda pair: pair[0].start, reverse=True):
            after = SourceText(after, source.path).edited([edit], f"# {patch.marker}")
        edited = SourceText(after, source.path)
        new = unbound(edited.tree, edited.text) - known
        lost = {patch: name for _, patch in edits for name in sorted(new) if name in patch.new}
        if not lost:
            return after
        states.update(
            {patch: f"refused: it uses {name}, which is not known here" for patch, name in lost.items()}
        )
        edits = [pair for pair in edits if pair[1] not in lost]
