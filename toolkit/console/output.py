"""Files that the user requested by name: a report, a facts file. Other files are not replaced unasked."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.target import UsageError

_PIECE = 4096  # bytes at either end of a file, where its kind is written


@dataclass(frozen=True)
class Kind:
    """A kind of file that the doctor writes: its name, and how such a file begins or ends."""

    name: str
    looks: bytes
    """A pattern, compiled only when such a file exists."""


def _json(name: str, key: str) -> Kind:
    """Return the kind of a JSON file with its schema version, and its content under `key`."""
    return Kind(name, rb'\A\s*\{[^{}[\]]*"schema_version"[^{}[\]]*"%b"\s*:' % key.encode())


FACTS = _json("facts file or snapshot", "facts")
AGREEMENT = _json("agreement", "agreed")
PATCHES = _json("file of patches", "patches")
PICTURE = Kind("picture", rb'\A<svg [^>]*class="vd"')
ANSWER = Kind(
    "report",
    rb"""(?mx)
        \A\{\s+"schema_version":\ \d+,\s+"verdict":                     # JSON
        | \A\{\s+"\$schema":[^{}[\]]*sarif(?s:.)*"name":\ "verl-doctor"
        | \A<\?xml[^>]*>\s*<testsuite\ name="verl-doctor"
        | \A<!doctype\ html>(?s:.)*content="verl-doctor"
        | \A<!--\ verl-doctor\ report | \A\#\#\ verl-doctor
        | \A[A-Z\ ]+\ [^\n]*\n\ \ (Python|old:)\                         # text of check, and of compare
        | \A\d+\ of\ \d+\ steps\ done
        | ^Made\ by\ verl-doctor
        | ^read\ \d+\ logs?,\ [^\n]*\ s\n\Z
        | ^verl-doctor:\ [^\n]*;\ \d+\ errors?,\ [^\n]*\n\Z              # annotations for GitHub
    """,
)


def refuse_others(path: Path, kind: Kind) -> None:
    """Raise UsageError for an existing file that is not of this kind and not empty.

    Devices and pipes are written to.
    """
    _refuse_foreign_link(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or not status.st_size or _stream(status) is not None:
            return
        with path.open("rb") as file:
            head = file.read(_PIECE)
            file.seek(max(0, status.st_size - _PIECE))
            tail = file.read(_PIECE)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not any(re.search(kind.looks, end) for end in (head, tail)):
        raise UsageError(
            f"{path} exists and is not a verl-doctor {kind.name}: name another file, or add --force"
        )


def _refuse_foreign_link(path: Path) -> None:
    """Raise UsageError for a link that another user made in a folder such as /tmp.

    The kernel does the same for open(2) (fs.protected_symlinks).
    """
    for way in (path, *path.parents):
        with contextlib.suppress(OSError, ValueError):
            link, folder = way.lstat(), way.parent.stat()
            shared = stat.S_ISVTX | stat.S_IWOTH
            if (
                stat.S_ISLNK(link.st_mode)
                and folder.st_mode & shared == shared
                and link.st_uid not in {0, os.geteuid(), folder.st_uid}
            ):
                raise UsageError(
                    f"{way} is a link of user {link.st_uid} in a folder that all may write to: name "
                    "another file"
                )


def refuse_inputs(path: Path, inputs: Iterable[str | Path]) -> None:
    """Raise UsageError when a file to write is also read."""
    for source in inputs:
        with contextlib.suppress(OSError, ValueError):
            if os.path.isfile(source) and path.samefile(source):
                raise UsageError(f"{path} is what is read: name another file to write to")


def why_not_new(path: Path) -> str:
    """Return why no new file can be created there; "" where nothing prevents it."""
    from verl_doctor.toolkit.machine import Machine  # noqa: PLC0415 - only for a file that was named
    from verl_doctor.toolkit.system.file_systems import why_not_writable  # noqa: PLC0415

    folder = str(Path(os.path.realpath(path)).parent)
    return (
        why_not_writable(Machine(), folder)
        if os.path.isdir(folder)
        else f"the folder {folder} does not exist"
    )


def write(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file whole or not at all; a pipe or a device is written to. Raises UsageError.

    Where its folder accepts no other file, a file is written in place, and restored when that fails. A new
    file gets the default permissions, or is private to its owner; an old one keeps its own.
    """
    content = text.encode("utf-8", "surrogatepass")
    _refuse_foreign_link(path)
    try:
        try:
            status = path.stat()
        except FileNotFoundError:
            _replace(Path(os.path.realpath(path)), content, None, private=private)
            return
        if private and stat.S_ISREG(status.st_mode) and status.st_uid not in {0, os.geteuid()}:
            raise UsageError(f"{path} belongs to user {status.st_uid}, who could read it: name another file")
        if stat.S_ISREG(status.st_mode) and _stream(status) is None:
            _replace_existing(Path(os.path.realpath(path)), content, status)
        else:
            stream = _stream(status)
            with open(_opened(path) if stream is None else stream, "wb", closefd=stream is None) as file:
                file.write(content)
    except (OSError, ValueError) as error:
        cause = (isinstance(error, OSError) and error.strerror) or str(error)
        raise UsageError(f"{path} cannot be written: {cause}") from None


def _opened(path: Path) -> int:
    """Open a path that is no regular file for writing.

    Raises OSError, also for a pipe without a reader, instead of waiting.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, "no process reads it") if error.errno == errno.ENXIO else error from None
    os.set_blocking(descriptor, True)
    return descriptor


def _stream(status: os.stat_result) -> int | None:
    """Return our stdout or stderr if it is this file: reopened, it would be written from the beginning."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), status):
                return descriptor
    return None


def _replace_existing(path: Path, content: bytes, status: os.stat_result) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        _replace(path, content, status)
    except OSError as error:
        # A writable file in a folder that is not, or a file that is a mount point.
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY}:
            raise
        before = path.read_bytes()
        try:
            path.write_bytes(content)
        except OSError:
            path.write_bytes(before)
            raise


def _replace(path: Path, content: bytes, status: os.stat_result | None, *, private: bool = False) -> None:
    unfinished = path.with_name(f".verl-doctor-{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, 0o666 if status is None and not private else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if status is not None:
                with contextlib.suppress(OSError):  # another user's file that we may write becomes ours
                    os.fchown(descriptor, status.st_uid, status.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            file.write(content)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
