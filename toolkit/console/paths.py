"""Paths as a user would write them: relative to the current folder, or from the home folder, if shorter."""

from __future__ import annotations

import os


def short(path: str, cwd: str | None = None, home: str | None = None) -> str:
    """Return an absolute path's shortest form: relative if below, or from the home; others are unchanged."""
    if not os.path.isabs(path):  # noqa: PTH117 - a text
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
    except OSError:  # the folder was removed
        return ""
