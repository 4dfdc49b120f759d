"""Patterns of `per_file_ignores` that match no file: a misspelt one would silence nothing, unnoticed."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from verl_doctor.toolkit.engine.config import Config, matches
from verl_doctor.toolkit.system.ownership import warn_once
from verl_doctor.toolkit.system.path_timeout import in_time

_PATIENCE = 0.3  # seconds: where more is to be searched, nothing is reported


def announce_unused(config: Config, files: Collection[Path]) -> None:
    """Report the patterns that match none of these launch files, and none beside or below the configuration.

    Nothing is reported unless its whole folder could be searched in time.
    """
    unmatched = [pattern for pattern in config.per_file_ignores if not matches(config, pattern, files)]
    if not unmatched:
        return
    for pattern in in_time(lambda: _unused(config, unmatched), 2 * _PATIENCE) or ():
        warn_once(
            f'{config.path}: per_file_ignores."{pattern}" silences nothing: no file below '
            f"{Path(config.path).parent} matches it"
        )


def _unused(config: Config, patterns: list[str]) -> list[str]:
    """Return the patterns that match no file; none if time ran out."""
    here, until = Path(config.path).parent, time.monotonic() + _PATIENCE
    left = [pattern for pattern in patterns if not _matches_at_once(here, pattern)]
    for files in _files_by_folder(here):
        if not left or time.monotonic() > until:
            return []
        left = [pattern for pattern in left if not matches(config, pattern, files)]
    return left


def _matches_at_once(folder: Path, pattern: str) -> bool:
    """Return whether a file matches at once, also behind a link to its folder."""
    found = glob.iglob(os.path.join(glob.escape(str(folder)), pattern))  # noqa: PTH118, PTH207 - pathlib refuses absolute patterns
    return any(map(os.path.isfile, found))


def _files_by_folder(top: Path) -> Iterator[list[Path]]:
    for folder, below, names in os.walk(top):
        below[:] = [name for name in below if name != ".git"]
        yield [Path(folder, name) for name in names]
