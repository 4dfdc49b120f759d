"""Finds the file or model that a path may have meant: nearby, with the same name or a similar one."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

_CLOSE = 0.7
_MOST = 500  # names of a folder that are compared


def beside(path: Path, folders: Iterable[Path]) -> str:
    """Return the only file of the same or a similar name; "" if there is none.

    A file of the same name is in these folders, one of a similar name in the path's own folder.

    Similar are also a name of which the path has only the beginning (`val.parquet`, `validation.parquet`),
    and one whose extension begins like the path's (`.parq`, `.parquet`).
    """
    here = {str(folder / path.name) for folder in folders if os.path.isfile(folder / path.name)} - {str(path)}
    if here:
        return here.pop() if len(here) == 1 else ""
    names = {Path(name).stem: name for name in _files(path.parent, path.suffix)}
    near = difflib.get_close_matches(path.stem, names, 2, _CLOSE)
    near = near or [stem for stem in names if stem.startswith(path.stem) and stem[len(path.stem) :].isalpha()]
    if not near and path.suffix:
        others = (Path(name) for name in _files(path.parent, ""))
        names = {
            name.name: name.name
            for name in others
            if name.stem == path.stem and _begins(path.suffix, name.suffix)
        }
        near = list(names)
    return str(path.parent / names[near[0]]) if len(near) == 1 else ""


def _begins(suffix: str, other: str) -> bool:
    return len(other) > 1 and (suffix.startswith(other) or other.startswith(suffix))


def model_beside(folder: Path) -> str:
    """Return the only model below or next to a folder; "" if there is none.

    It is below a folder that holds none itself, or has a similar name next to a missing folder.

    For one of a model's files, it is that model.
    """
    if os.path.isfile(folder) and os.path.isfile(folder.parent / "config.json"):
        return str(folder.parent)
    if os.path.isdir(folder):
        models = [*_models(folder), *_models(folder / "snapshots")]  # the layout of the hub's cache
        return str(models[0]) if len(models) == 1 else ""
    names = {model.name: model for model in _models(folder.parent)}
    near = difflib.get_close_matches(folder.name, names, 2, _CLOSE)
    return str(names[near[0]]) if len(near) == 1 else ""


def _models(folder: Path) -> list[Path]:
    """Return a folder's folders with a model's configuration; none if it has too many entries to compare."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return []
    found = (folder / name for name in names) if len(names) <= _MOST else ()
    return [path for path in found if os.path.isfile(path / "config.json")]


def _files(folder: Path, suffix: str) -> list[str]:
    """Return the files of a folder with this suffix; none if it has too many entries to compare."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(suffix) and entry.is_file()]
    except OSError:
        return []
    return names if len(names) <= _MOST else []
