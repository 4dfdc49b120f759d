"""Installed distributions that have entry points of a group, from their metadata."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import read


def distributions_with(group: str, path: Iterable[str]) -> Iterator[str]:
    """Yield the names of the distributions on a path that have entry points of this group."""
    for entry in path:
        try:
            folders = [name for name in os.listdir(entry) if name.endswith((".dist-info", ".egg-info"))]  # noqa: PTH208 - names alone
        except OSError:
            continue
        for name in sorted(folders):
            content = read(Path(entry, name, "entry_points.txt"))
            if isinstance(content, bytes) and f"[{group}]".encode() in content:
                yield name.partition("-")[0]
