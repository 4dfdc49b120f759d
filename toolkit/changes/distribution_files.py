"""Removes the files of an installed distribution, even if no installer can.

It may be partly installed, or installed twice.
"""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.changes.environment_copy import is_folder

_METADATA = (".dist-info", ".egg-info")


def cleared(metadata: Path, environment: Path) -> None:
    """Remove the files in a distribution's RECORD, except those that others also list, then its metadata.

    Raises OSError.

    Without a RECORD, the folders that its metadata names are removed. Nothing outside the environment is
    touched. Of files that pip moved away, only their folder is removed.
    """
    if metadata.name.startswith("~"):
        shutil.rmtree(metadata) if is_folder(metadata) else metadata.unlink(missing_ok=True)
        return
    site, top = metadata.parent, os.path.realpath(environment)
    files = set(_listed(metadata)) or set(_top_level(metadata))
    files -= {path for other in _others(metadata) for path in _listed(other)}
    folders: set[Path] = set()
    for path in files:
        real = Path(os.path.realpath(path.parent), path.name)
        if not real.is_relative_to(top) or real.is_relative_to(os.path.realpath(metadata)):
            continue
        if is_folder(path):
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
            if path.suffix == ".py":
                for cache in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                    cache.unlink(missing_ok=True)
        folders |= {folder for folder in path.parents if folder.is_relative_to(site) and folder != site}
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        _remove_if_empty(folder)
    if is_folder(metadata):
        shutil.rmtree(metadata)
    else:
        metadata.unlink(missing_ok=True)


def _others(metadata: Path) -> Iterator[Path]:
    """Yield the metadata of other projects in the same folder, and of an editable install of this project."""
    stem = _stem(metadata)
    for other in metadata.parent.iterdir():
        is_other = other.name.endswith(_METADATA) and other != metadata and os.path.isdir(other)
        if is_other and (_stem(other) != stem or os.path.exists(other / "direct_url.json")):
            yield other


def _stem(metadata: Path) -> str:
    return metadata.name.partition("-")[0].lower().replace(".", "_")


def _listed(metadata: Path) -> Iterator[Path]:
    try:
        text = (metadata / "RECORD").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    for row in csv.reader(text.splitlines()):
        if row and row[0]:
            yield Path(os.path.normpath(metadata.parent / row[0]))


def _top_level(metadata: Path) -> Iterator[Path]:
    try:
        names = (metadata / "top_level.txt").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        names = [_stem(metadata)]
    for name in names:
        if name.isidentifier():
            yield metadata.parent / name
            yield metadata.parent / f"{name}.py"


def _remove_if_empty(folder: Path) -> None:
    for place in (folder / "__pycache__", folder):
        with contextlib.suppress(OSError):
            place.rmdir()
