"""The checkout that the user stands in: a CI names its files by their path in it."""

from __future__ import annotations

import os
from pathlib import Path


def checkout(cwd: Path) -> Path:
    """The nearest folder above that git keeps; the current one where there is none."""
    return next((folder for folder in (cwd, *cwd.parents) if os.path.lexists(folder / ".git")), cwd)


def path_in(top: Path, path: str) -> str:
    """The path of a file as the checkout has it, with forward slashes; "" for one that lies elsewhere."""
    if "\0" in path:  # no file has that in its name
        return ""
    named = top / path
    for base, file in ((top, Path(os.path.normpath(named))), (top.resolve(), Path(os.path.realpath(named)))):
        if file.is_relative_to(base) and file != base:
            return file.relative_to(base).as_posix()
    return ""
