"""Atomic writes: a crash at any instant leaves either the old or the new file.

Nothing here writes to an existing file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.system.ownership import next_step, why_status_not_ours

_NO_XATTRS = {errno.ENOTSUP, errno.ENODATA}
# Labels that the kernel sets by its own policy; ordinary users may not copy them.
_KERNELS_OWN = ("security.", "trusted.")


def sha256(content: bytes) -> str:
    """Return the digest by which the journal identifies a content."""
    return hashlib.sha256(content).hexdigest()


def read(file: Path, largest: int | None = None, *, owner: int | None = None) -> bytes | None:
    """Return the content of a regular file, or None if it does not exist.

    Never waits for a named pipe. Raises OSError, and Refused for anything but a regular file, for more than
    `largest` bytes, and, with an `owner`, for a file that a user other than that owner, root or this user
    could have written.
    """
    try:
        descriptor = _opened(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise Refused(f"{file} is not a regular file; the doctor changes nothing else") from None
        raise
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise Refused(f"{file} is not a regular file; the doctor changes nothing else")
        if owner is not None and (why := why_status_not_ours(file, seen, trusted=owner, opened=descriptor)):
            raise Refused(
                f"{file} is not trusted, because another user could have written it: {why}; {next_step(file)}"
            )
        if largest is not None and seen.st_size > largest:
            raise Refused(f"{file} is larger than {largest} bytes; it was not written by the doctor")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(descriptor)


def _opened(file: Path) -> int:
    """Open a file for reading without changing its access time, as only its owner and root may."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(file, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(file, flags)


def create(file: Path, content: bytes, mode: int) -> None:
    """Write a new file, flushed to the disk, with permission bits `mode`. Raises OSError."""
    with _new(file) as descriptor:
        _write(descriptor, content)
        os.fchmod(descriptor, mode)


def create_like(file: Path, content: bytes, model: Path, owner: tuple[int, int] | None = None) -> None:
    """Like `create`, with the mode, access list and extended attributes of `model`.

    The file also has the owner of `model` unless one is given, and a later whole second.

    Python detects stale bytecode by size and whole second, so two versions of the same length must not share
    a second. Raises OSError if an attribute cannot be kept.
    """
    kept = model.stat()
    with _new(file) as descriptor:
        _write(descriptor, content)
        made = os.fstat(descriptor)
        wanted = owner or (kept.st_uid, kept.st_gid)
        if (made.st_uid, made.st_gid) != wanted:
            os.fchown(descriptor, *wanted)
        os.fchmod(descriptor, stat.S_IMODE(kept.st_mode))
        _copy_attributes(model, descriptor)
        if int(made.st_mtime) <= int(kept.st_mtime):
            os.utime(descriptor, (made.st_atime, int(kept.st_mtime) + 1))


def rename(old: Path, new: Path) -> None:
    """Rename within one folder, replacing the target, flushed to the disk. Raises OSError."""
    old.replace(new)
    sync_folder(new.parent)


def remove(file: Path) -> None:
    """Remove a file, flushed to the disk. Raises OSError."""
    file.unlink()
    sync_folder(file.parent)


def make_folder(folder: Path) -> None:
    """Create a folder if it does not exist, flushed to the disk. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o755)  # whatever the umask, other users must not be able to replace files there
        sync_folder(folder.parent)


def remove_if_empty(folder: Path) -> bool:
    """Remove a folder if it is empty. Return whether it is gone. Raises OSError."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            return False
        raise
    return True


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop_bytecode(source: Path) -> None:
    """Remove the caches of a Python source, of every version and optimisation level. Raises OSError.

    A cache may be of the kind that Python never compares with its source.
    """
    if source.suffix != ".py":
        return
    cache = re.compile(re.escape(source.stem) + r"\.[^.]+(\.opt-[^.]+)?\.pyc")
    folder = source.parent / "__pycache__"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for file in folder.iterdir():
            if cache.fullmatch(file.name):
                file.unlink(missing_ok=True)


@contextlib.contextmanager
def _new(file: Path) -> Iterator[int]:
    """Open a new file, and flush it to the disk on exit. Errors name the file, whichever call raised them."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o600)
    try:
        yield descriptor
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(file)
        raise
    finally:
        os.close(descriptor)


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copy_attributes(model: Path, descriptor: int) -> None:
    """Give the file exactly the attributes of `model`.

    A folder's default access list adds some on creation.
    """
    try:
        wanted = {name: os.getxattr(model, name) for name in os.listxattr(model)}
        for name in os.listxattr(descriptor):
            if name not in wanted and not name.startswith(_KERNELS_OWN):
                os.removexattr(descriptor, name)
    except OSError as error:
        if error.errno in _NO_XATTRS:
            return
        raise
    for name, value in wanted.items():
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:  # noqa: PERF203 - a handful of attributes
            if not (error.errno in {errno.EPERM, errno.ENOTSUP} and name.startswith(_KERNELS_OWN)):
                raise
