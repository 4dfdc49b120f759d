"""Files that the user asked for by name: a report, a facts file."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import UsageError


def why_not_new(path: Path) -> str:
    """Why no new file can be made there; "" where nothing speaks against it."""
    from verl_doctor.toolkit.file_systems import why_not_writable  # noqa: PLC0415 - only for a file that was named

    folder = str(Path(os.path.realpath(path)).parent)
    return why_not_writable(Machine(), folder) if os.path.isdir(folder) else f"there is no folder {folder}"


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; a pipe or a device is written to. Raises UsageError.

    A new file gets the permissions of any new file, an old one keeps its own.
    """
    content = text.encode("utf-8", "surrogatepass")
    try:
        try:
            there = path.stat()
        except FileNotFoundError:
            _replace(Path(os.path.realpath(path)), content, None)
            return
        if stat.S_ISREG(there.st_mode) and _stream(there) is None:
            _replace_existing(Path(os.path.realpath(path)), content, there)
        else:
            with open(
                path if (stream := _stream(there)) is None else stream, "wb", closefd=stream is None
            ) as file:
                file.write(content)
    except (OSError, ValueError) as error:
        cause = (isinstance(error, OSError) and error.strerror) or str(error)
        raise UsageError(f"{path} cannot be written: {cause}") from None


def _stream(there: os.stat_result) -> int | None:
    """Our own standard output or error, when this is it: opened anew, it would be written from the beginning."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), there):
                return descriptor
    return None


def _replace_existing(path: Path, content: bytes, there: os.stat_result) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        _replace(path, content, there)
    except OSError as error:
        # A file that may be written in a folder that may not, or one that is mounted by itself.
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY}:
            raise
        path.write_bytes(content)


def _replace(path: Path, content: bytes, there: os.stat_result | None) -> None:
    unfinished = path.with_name(f".verl-doctor-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, 0o666 if there is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if there is not None:
                with contextlib.suppress(OSError):  # somebody else's file that we may write becomes ours
                    os.fchown(descriptor, there.st_uid, there.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
            file.write(content)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
