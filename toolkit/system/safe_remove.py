"""Removes and renames entries of an open folder: follows no link, enters no mount, replaces nothing."""

from __future__ import annotations

import ctypes
import errno
import os
import stat

from verl_doctor.toolkit.system.errors import os_error_text
from verl_doctor.toolkit.system.open_folder import entries, mount_of, opened

_NO_REPLACE = 1  # RENAME_NOREPLACE of renameat2(2)
_NOT_OFFERED = {errno.EINVAL, errno.ENOSYS}  # not supported by this file system, by this kernel


def erase(name: str, folder: int, about: os.stat_result) -> list[str]:
    """Remove an entry of an open folder, with its contents, if it is still the one described by `about`.

    Returns a clause for each entry that could not be removed; the rest is removed anyway.
    """
    failed: list[str] = []
    _erase(name, folder, about, mount_of(folder), failed)
    return failed


def _erase(name: str, folder: int, about: os.stat_result, mount: str, failed: list[str]) -> None:
    try:
        if stat.S_ISDIR(about.st_mode):
            before = len(failed)
            with opened(name, folder) as inner:
                # Ray makes its folders world-writable, and /tmp/ray has no sticky bit.
                if not os.path.samestat(os.fstat(inner), about) or mount_of(inner) != mount:
                    failed.append(f"{name}: it was replaced by something else")
                    return
                os.fchmod(inner, stat.S_IRWXU)  # it may have been made read-only
                for entry, its in entries(inner):
                    _erase(entry, inner, its, mount, failed)
            if len(failed) == before:
                os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        failed.append(os_error_text(error) if error.filename else f"{name}: {error.strerror}")


def rename(old: str, new: str, folder: int) -> None:
    """Rename within an open folder, replacing nothing.

    Raises OSError, and FileExistsError if the new name exists.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    number = _rename_at(libc, old, new, folder) if hasattr(libc, "renameat2") else errno.ENOSYS
    if number in _NOT_OFFERED:
        if _is_there(new, folder):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)
    elif number:
        raise OSError(number, os.strerror(number), old)


def _rename_at(libc: ctypes.CDLL, old: str, new: str, folder: int) -> int:
    """Call renameat2(2); return its result, 0 on success. Python only has rename(2), which replaces."""
    failed = libc.renameat2(folder, os.fsencode(old), folder, os.fsencode(new), _NO_REPLACE)
    return ctypes.get_errno() if failed else 0


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
