"""The doctor's own folders, which no other user can enter, whatever the umask."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from verl_doctor.toolkit.system.ownership import why_status_not_ours

_MODE = stat.S_IRWXU


class ForeignFolderError(OSError):
    """A folder to be used as the doctor's own may contain another user's files.

    The message is one sentence.
    """


def made(folder: Path) -> Path:
    """Create a folder of the doctor's own and missing parents, or close an existing one to others.

    Raises OSError, and ForeignFolderError if other users could have written to it before.
    """
    for missing in reversed([parent for parent in (folder, *folder.parents) if not os.path.lexists(parent)]):
        _make(missing)
    about = folder.stat()
    if why := why_status_not_ours(folder, about):
        raise ForeignFolderError(why)
    if about.st_uid == os.geteuid() and stat.S_IMODE(about.st_mode) != _MODE:
        folder.chmod(_MODE)
    return folder


def _make(folder: Path) -> None:
    try:
        folder.mkdir(_MODE)
    except FileExistsError:  # another doctor was faster
        return
    folder.chmod(_MODE)  # the umask may have removed permissions
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
