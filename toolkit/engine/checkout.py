"""The checkout that the user stands in: a CI names its files by their path in it."""

from __future__ import annotations

import os
from pathlib import Path


def checkout(cwd: Path) -> Path:
    """The nearest folder above that git keeps; the current one where there is none."""
    return next((folder for folder in (cwd, *cwd.parents) if os.path.lexists(folder / ".git")), cwd)


def path_in(top: Path, path: str) -> str:
    """The path of a file as the checkout has it, with forward slashes; "" for one that lies elsewhere."""
    if not _may_be_a_name(path):
        return ""
    named = top / path
    for base, file in ((top, Path(os.path.normpath(named))), (top.resolve(), Path(os.path.realpath(named)))):
        if file.is_relative_to(base) and file != base:
            return file.relative_to(base).as_posix()
    return ""


def _may_be_a_name(path: str) -> bool:
    """Whether a file can be called so: what a facts file says need not be."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
