"""The doctor's own folders: nobody else may enter them, whatever the umask is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from verl_doctor.toolkit.system.ownership import why_status_foreign

_MODE = stat.S_IRWXU


class ForeignFolderError(OSError):
    """A folder that would be the doctor's own may hold what another user wrote. It is one sentence."""


def made(folder: Path) -> Path:
    """Make a folder of the doctor's own, and those above it that are missing; one that is there is closed to others.

    Raises OSError; ForeignFolderError when others could have written into it before.
    """
    for missing in reversed([parent for parent in (folder, *folder.parents) if not os.path.lexists(parent)]):
        _make(missing)
    about = folder.stat()
    if why := why_status_foreign(folder, about):
        raise ForeignFolderError(why)
    if about.st_uid == os.geteuid() and stat.S_IMODE(about.st_mode) != _MODE:
        folder.chmod(_MODE)
    return folder


def _make(folder: Path) -> None:
    try:
        folder.mkdir(_MODE)
    except FileExistsError:  # another doctor was faster
        return
    folder.chmod(_MODE)  # the umask may have taken from it
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
