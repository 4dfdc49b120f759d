"""Machines that are not at hand: files of /proc and /sys below a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from verl_doctor.toolkit.machine import Machine


def recorded(root: Path, files: Mapping[str, str], **environ: str) -> Machine:
    """A machine that has these files, by absolute path."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(environ=environ, root=root)
