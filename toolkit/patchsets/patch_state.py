"""The state of a patch in a tree that does not contain it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from verl_doctor.toolkit.patchsets import patchset
from verl_doctor.toolkit.patchsets.line_patch import LinePatch, place_of
from verl_doctor.toolkit.patchsets.patchset import AnyPatch, NoPlace, Patch
from verl_doctor.toolkit.sources.python.edit import CannotEdit, SourceText
from verl_doctor.toolkit.sources.python.source import Unreadable, read


def content_of(name: str, folder: Path) -> bytes | Unreadable:
    """Return the content of a file of the tree, or why it cannot be used."""
    path = folder / name
    return read(path) if os.path.exists(path) else Unreadable(f"there is no {name} in this tree")


def source_of(name: str, folder: Path) -> SourceText | str:
    """Return a parsed file of the tree, or why it cannot be used."""
    source = content_of(name, folder)
    if isinstance(source, Unreadable):
        return source.reason
    try:
        return SourceText(source, str(folder / name))
    except CannotEdit as reason:
        return str(reason)


def missing(patch: AnyPatch, folder: Path, present: Iterable[AnyPatch], again: str) -> str:
    """Return the state of a patch that is not `present` in the tree.

    `again` is the command that restores it.
    """
    if isinstance(patch, LinePatch):
        return _missing_lines(patch, folder, again)
    source = source_of(patch.path, folder)
    if isinstance(source, str):
        return f"gone: {source}"
    edit = patchset.edit_for(patch, source)
    if isinstance(edit, NoPlace):
        others = (other for other in present if isinstance(other, Patch) and other.path == patch.path)
        same = next(
            (other for other in others if (other.scope, other.statements) == (patch.scope, patch.statements)),
            None,
        )
        return f"changed: line {same.line} has another patch" if same else f"gone: {edit.reason}"
    line = source.text.count("\n", 0, edit.start) + 1
    return f"lost: line {line} is as it was before the patch; {again} brings it back"


def _missing_lines(patch: LinePatch, folder: Path, again: str) -> str:
    """Return the same for a patch located by lines. `folder` is the package's or the checkout's."""
    content = content_of(patch.path, folder)
    if isinstance(content, Unreadable):
        return f"gone: {content.reason}"
    lines = content.decode("utf-8", "replace").splitlines()
    place = place_of(patch, lines)
    if isinstance(place, str):
        return f"gone: {place}"
    return f"lost: line {place.start + 1} is as it was before the patch; {again} brings it back"
