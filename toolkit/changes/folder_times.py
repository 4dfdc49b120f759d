"""The times of folders, which undo restores where no other names have come."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from verl_doctor.toolkit.changes import safe_write
from verl_doctor.toolkit.changes.records import FileRecord, FolderRecord, Planned

# Folder entries other than sources: caches, and the doctor's own files.
_NO_CONTENT = ("__pycache__", ".verl-doctor")


def around(plan: Sequence[Planned]) -> tuple[FolderRecord, ...]:
    """Return the current state of the folders whose entries a plan changes. Raises OSError."""
    files = [Path(planned.record.file) for planned in plan if isinstance(planned.record, FileRecord)]
    folders = dict.fromkeys(
        next(folder for folder in file.parents if os.path.isdir(folder)) for file in files
    )
    return tuple(_folder(folder) for folder in folders)


def restore_folder_times(folders: Sequence[FolderRecord]) -> None:
    """Restore the times of folders with unchanged names in them, to keep Python's cached listings valid."""
    for record in folders:
        with contextlib.suppress(OSError):
            if _folder(Path(record.path)).names == record.names:
                os.utime(record.path, ns=(record.atime, record.mtime))


def _folder(folder: Path) -> FolderRecord:
    seen = folder.stat()
    names = sorted(name for name in os.listdir(folder) if not name.startswith(_NO_CONTENT))  # noqa: PTH208
    digest = safe_write.sha256("\0".join(names).encode("utf-8", "surrogateescape"))
    return FolderRecord(str(folder), seen.st_atime_ns, seen.st_mtime_ns, digest)
