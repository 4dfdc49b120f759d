"""The file that a path may have meant: it lies beside, under the same name or one with a slip."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

_CLOSE = 0.7
_MOST = 500  # names of a folder that are compared


def beside(path: Path, folders: Iterable[Path]) -> str:
    """The only file of the same name in one of these folders, or of nearly the same name in the path's own folder; "" for none."""
    here = {str(folder / path.name) for folder in folders if os.path.isfile(folder / path.name)} - {str(path)}
    if here:
        return here.pop() if len(here) == 1 else ""
    names = {Path(name).stem: name for name in _files(path.parent, path.suffix)}
    near = difflib.get_close_matches(path.stem, names, 2, _CLOSE)
    return str(path.parent / names[near[0]]) if len(near) == 1 else ""


def _files(folder: Path, suffix: str) -> list[str]:
    """The files of a folder with this ending; none of one that is too full to tell."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(suffix) and entry.is_file()]
    except OSError:
        return []
    return names if len(names) <= _MOST else []
