"""The checkout around the current folder: CI systems name its files relative to it."""

from __future__ import annotations

import os
from pathlib import Path


def checkout(cwd: Path) -> Path:
    """Return the nearest git checkout from this folder upwards; the current folder where there is none."""
    return next((folder for folder in (cwd, *cwd.parents) if os.path.lexists(folder / ".git")), cwd)


def path_in(top: Path, path: str) -> str:
    """Return the path of a file relative to the checkout, with forward slashes; "" for a file outside it."""
    if not _may_be_a_name(path):
        return ""
    named = top / path
    for base, file in ((top, Path(os.path.normpath(named))), (top.resolve(), Path(os.path.realpath(named)))):
        if file.is_relative_to(base) and file != base:
            return file.relative_to(base).as_posix()
    return ""


def _may_be_a_name(path: str) -> bool:
    """Return whether this can be a file name; the content of a facts file need not be."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
