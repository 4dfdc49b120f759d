"""Paths as a person would write them: relative to where they stand, or from their home, when that is shorter."""

from __future__ import annotations

import os


def short(path: str, cwd: str | None = None, home: str | None = None) -> str:
    """Return the shortest way to write an absolute path, from here when it lies below, or from the home; what is no absolute path is returned as it is."""
    if not os.path.isabs(path):  # noqa: PTH117 - it is text
        return path
    forms = [path]
    cwd = _here() if cwd is None else cwd
    home = os.environ.get("HOME", "") if home is None else home
    if cwd and not (relative := os.path.relpath(path, cwd)).startswith(".."):
        forms.append(relative)
    if len(home) > 1 and (path == home or path.startswith(home.rstrip("/") + "/")):
        forms.append("~" + path[len(home.rstrip("/")) :])
    return min(forms, key=len)


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - as the other calls here
    except OSError:  # the folder is gone
        return ""
