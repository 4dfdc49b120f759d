"""Small JSON files in the doctor's own cache folder. A file that cannot be read or written counts as missing.

Files that another user could have written are not read: neither another user's files, nor any in a folder
that others can write to.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

import platformdirs

from verl_doctor.toolkit.system import own_folders
from verl_doctor.toolkit.system.own_folders import ForeignFolderError
from verl_doctor.toolkit.system.ownership import next_step, warn_once, why_any_not_ours, why_status_not_ours

_MODE = 0o600


def read(file: Path, largest: int, seconds: float = math.inf) -> Any:
    """Return the content of a file of at most `largest` bytes.

    None when it is unavailable, older, or may be another user's.
    """
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = _bytes(file, largest, seconds)
        return None if content is None else json.loads(content)
    return None


def write(file: Path, content: Any) -> None:
    """Write a file atomically.

    One of two concurrent doctors may lose its entry, but the file is never damaged.
    """
    try:
        for folder in reversed(_folders(file)):
            own_folders.made(folder)
        _write(file, content)
    except ForeignFolderError as why:
        _warn(str(why), file)
    except OSError:
        return


def keep_youngest(folder: Path, most: int) -> None:
    """Remove the oldest files until `most` are left. Other processes may do the same at the same time."""
    with contextlib.suppress(OSError):
        files = list(os.scandir(folder))
        if len(files) > most:
            files.sort(key=lambda file: file.stat().st_mtime)
            for file in files[:-most]:
                Path(file.path).unlink(missing_ok=True)


def _bytes(file: Path, largest: int, seconds: float) -> bytes | None:
    """Return the content, checking the opened file itself, because its name may now refer to another."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > largest:
            return None
        if not 0 <= time.time() - about.st_mtime < seconds and seconds < math.inf:
            return None
        if why := why_any_not_ours(_folders(file), group_counts=True) or why_status_not_ours(
            file, about, opened=descriptor
        ):
            _warn(why, file)
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(descriptor)


def _write(file: Path, content: Any) -> None:
    descriptor, unfinished = tempfile.mkstemp(dir=file.parent, prefix=f"{file.stem}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(content, stream)
            os.fchmod(descriptor, _MODE)
        Path(unfinished).replace(file)
    except OSError:
        Path(unfinished).unlink(missing_ok=True)


def top() -> Path:
    """Return the doctor's own cache folder."""
    return platformdirs.user_cache_path("verl-doctor")


def _folders(file: Path) -> tuple[Path, ...]:
    """Return the folders of the cache above a file, nearest first; only the nearest if it is outside."""
    own = top()
    return tuple(folder for folder in file.parents if folder.is_relative_to(own)) or (file.parent,)


def _warn(why: str, file: Path) -> None:
    outermost = _folders(file)[-1]
    warn_once(f"the cache {outermost} is ignored: {why}; {next_step(outermost)}")
