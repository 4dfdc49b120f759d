"""What has become of a patch in a tree that does not hold it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from verl_doctor.toolkit import patchset
from verl_doctor.toolkit.patchset import NoPlace, Patch
from verl_doctor.toolkit.py_edit import CannotEdit, SourceText
from verl_doctor.toolkit.py_source import Unreadable, read


def source_of(name: str, folder: Path) -> SourceText | str:
    """A file of the tree to find places in, or why it cannot be used."""
    path = folder / name
    if not os.path.exists(path):
        return f"there is no {name} in this tree"
    source = read(path)
    if isinstance(source, Unreadable):
        return source.reason
    try:
        return SourceText(source, str(path))
    except CannotEdit as reason:
        return str(reason)


def missing(patch: Patch, folder: Path, present: Iterable[Patch], again: str) -> str:
    """What became of a patch that is not among those `present` in the tree. `again` is the command that brings it back."""
    source = source_of(patch.path, folder)
    if isinstance(source, str):
        return f"gone: {source}"
    edit = patchset.edit_for(patch, source)
    if isinstance(edit, NoPlace):
        others = (one for one in present if one.path == patch.path)
        same = next(
            (one for one in others if (one.scope, one.statements) == (patch.scope, patch.statements)), None
        )
        return f"changed: line {same.line} has another patch" if same else f"gone: {edit.reason}"
    line = source.text.count("\n", 0, edit.start) + 1
    return f"lost: line {line} is as it was before the patch; {again} brings it back"
