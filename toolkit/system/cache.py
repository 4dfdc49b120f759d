"""Small JSON files in the doctor's own cache folder: what cannot be read or written is as good as not there.

What another user could have written is never read: not a file, and none of a folder into which others may write.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import platformdirs

from verl_doctor.toolkit.system import own_folders
from verl_doctor.toolkit.system.own_folders import ForeignFolderError
from verl_doctor.toolkit.system.ownership import next_step, warn_once, why_any_foreign, why_status_foreign

_MODE = 0o600


def read(file: Path, largest: int) -> Any:
    """The content of a file of at most `largest` bytes, None when it cannot be had or may be another user's work."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = _bytes(file, largest)
        return None if content is None else json.loads(content)
    return None


def write(file: Path, content: Any) -> None:
    """Write whole or not at all; two doctors at once cost one of them its answer, never a damaged file."""
    try:
        for folder in reversed(_folders(file)):
            own_folders.made(folder)
        _write(file, content)
    except ForeignFolderError as why:
        _warn(str(why), file)
    except OSError:
        return


def keep_youngest(folder: Path, most: int) -> None:
    """Remove the files that were written first until `most` are left. Others may do the same at the same time."""
    with contextlib.suppress(OSError):
        files = list(os.scandir(folder))
        if len(files) > most:
            files.sort(key=lambda file: file.stat().st_mtime)
            for file in files[:-most]:
                Path(file.path).unlink(missing_ok=True)


def _bytes(file: Path, largest: int) -> bytes | None:
    """The content, after a look at the very file that was opened: another one may have its name by then."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > largest:
            return None
        if why := why_any_foreign(_folders(file), group_counts=True) or why_status_foreign(
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
    """The doctor's own cache folder."""
    return platformdirs.user_cache_path("verl-doctor")


def _folders(file: Path) -> tuple[Path, ...]:
    """The folders of the cache above a file, the nearest first; the nearest alone for a file outside of it."""
    own = top()
    return tuple(folder for folder in file.parents if folder.is_relative_to(own)) or (file.parent,)


def _warn(why: str, file: Path) -> None:
    outermost = _folders(file)[-1]
    warn_once(f"the cache {outermost} is not read: {why}; {next_step(outermost)}")
