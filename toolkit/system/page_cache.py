"""Measures how much of a file is in the kernel's page cache, without reading the file.

cachestat(2) covers a whole file at once (Linux 6.5), mincore(2) a mapping page by page. Each is wrong in one
case, which is detected:

* Linux 6.14 reveals nothing to a user who neither owns a file nor can write to it: cachestat refuses, and
  mincore reports every page as resident, even one far beyond the end of the file (can_do_mincore in
  mm/mincore.c).
* A file system on top of another, such as overlayfs, reads into the cache of the lower one: cachestat
  examines the
upper file, which is never cached; a mapping refers to the lower file.

File systems with their own caches (ZFS, Spectrum Scale) may hold data in memory that the kernel does not
report.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Unknown

_CACHESTAT = 451  # on all architectures except alpha
_CACHESTAT_MISSING = frozenset({errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP})
_WINDOW = 1024 * 1024  # bytes of one window of a sample
_WINDOWS = 64  # windows that verify cachestat's result
_MAPPED = 1024 * 1024 * 1024  # bytes that are mapped at a time
_FAR_BEHIND = 1024 * 1024 * 1024  # bytes; a large page at the end of a file never reaches that far


@dataclass(frozen=True)
class Residency:
    """Bytes, in whole pages: `size` of the requested range, `looked_at` of these, `cached` of the latter."""

    size: int
    looked_at: int
    cached: int

    @property
    def share(self) -> float:
        """The share that is cached, from 0 to 1; 1 for an empty file."""
        return self.cached / self.looked_at if self.looked_at else 1.0


def residency(
    file: int, start: int = 0, length: int | None = None, *, most: int | None = None
) -> Residency | Unknown:
    """Examine a range of an open file, by default all of it. `start` is a multiple of the page size.

    If it must go page by page (0.015 s for 1 GB), it examines about `most` bytes, spread evenly. `Unknown`
    states why this kernel reports nothing. Raises OSError for a file that cannot be examined at all.
    """
    end = os.fstat(file).st_size
    size = whole_pages(max(0, min(end - start, end if length is None else length)))
    if not size:
        return Residency(0, 0, 0)
    counted = _cachestat(file, start, size)
    if counted:
        return Residency(size, size, counted)
    refused = _why_unreliable(file, end)
    if refused:
        return refused
    if counted == 0 and not _counted(file, start, size, _WINDOWS * _WINDOW).cached:
        return Residency(size, size, 0)
    return _counted(file, start, size, most)


def whole_pages(size: int) -> int:
    """Return a number of bytes, rounded up to whole pages."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "written", "evicted", "recently_evicted")
    )


@functools.cache
def _kernel() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    library.syscall.restype = ctypes.c_long
    return library


def _cachestat(file: int, start: int, size: int) -> int | None:
    """Return how many bytes are cached; None if the kernel or container runtime does not allow the call."""
    requested, counts = _Range(start, size), _Counts()
    arguments = (ctypes.c_uint(file), ctypes.byref(requested), ctypes.byref(counts), ctypes.c_uint(0))
    if _kernel().syscall(ctypes.c_long(_CACHESTAT), *arguments) == 0:
        return int(counts.cached) * mmap.PAGESIZE
    if ctypes.get_errno() in _CACHESTAT_MISSING:
        return None
    raise _error()


def _why_unreliable(file: int, end: int) -> Unknown | None:
    """Return why mincore would report everything resident, as to unauthorised users; "" if it would not."""
    behind = whole_pages(end) + _FAR_BEHIND
    try:
        with _mapping(file, behind, mmap.PAGESIZE) as address:
            everything = _resident(address, mmap.PAGESIZE) > 0
    except OSError as error:
        if error.errno in {errno.ENODEV, errno.EACCES, errno.ENOMEM}:
            return Unknown(f"this file cannot be mapped into memory ({error.strerror})")
        raise
    if everything:
        return Unknown(
            "the kernel reports what is cached of a file only to its owner and to users who can write to it"
        )
    return None


def _counted(file: int, start: int, size: int, most: int | None) -> Residency:
    """Count by mincore: everything, or evenly spread windows of about `most` bytes."""
    if most is None or most >= size:
        pieces = [(offset, min(_MAPPED, size - offset)) for offset in range(0, size, _MAPPED)]
    else:
        step = whole_pages(size // max(1, most // _WINDOW))
        pieces = [(offset, min(_WINDOW, size - offset)) for offset in range(0, size, step)]
    cached = 0
    for offset, length in pieces:
        with _mapping(file, start + offset, length) as address:
            cached += _resident(address, length)
    return Residency(size, sum(length for _, length in pieces), cached)


@contextlib.contextmanager
def _mapping(file: int, start: int, length: int) -> Iterator[int]:
    address = _kernel().mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, file, start)
    if address in {None, ctypes.c_void_p(-1).value}:
        raise _error()
    try:
        yield address
    finally:
        _kernel().munmap(address, length)


def _resident(address: int, length: int) -> int:
    """Return how many bytes of a mapping are in memory: mincore reports one byte per page, 1 or 0."""
    answers = ctypes.create_string_buffer(length // mmap.PAGESIZE)
    if _kernel().mincore(address, length, answers) != 0:
        raise _error()
    return answers.raw.count(1) * mmap.PAGESIZE


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
