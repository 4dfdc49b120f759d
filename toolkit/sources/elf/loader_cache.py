"""The loader's cache of libraries, /etc/ld.so.cache, as ldconfig(8) writes it.

The formats are from glibc's sysdeps/generic/dl-cache.h: the old format of 1997, the new format of glibc 2.2,
which may follow the old one in the same file, and its extension of glibc 2.33 that names subfolders for newer
processors.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

PATH = "/etc/ld.so.cache"
_OLD = b"ld.so-1.7.0"
_NEW = b"glibc-ld.so.cache1.1"
_NEW_HEADER = 48  # bytes
_EXTENSION_MAGIC = 0xEAA42174
_HWCAPS_TAG = 1
_HWCAP_EXTENSION = 1 << 62
_ELF_LIBC6 = 3
# The second byte of an entry's flags for 64-bit libraries (FLAG_* in glibc's sysdeps/generic/ldconfig.h).
_FLAGS = {"x86_64": 0x03, "s390x": 0x04, "ppc64le": 0x05, "aarch64": 0x0A, "riscv64": 0x10}
_MOST_ENTRIES = 200_000


@dataclass(frozen=True)
class Cached:
    """One library in the cache.

    `hwcaps` names the processors that it is for, such as "x86-64-v3", "" for any.
    """

    soname: str
    path: str
    flags: int
    hwcaps: str = ""

    def is_for(self, processor: str) -> bool:
        """Return whether the loader of 64-bit programs for this processor considers the entry.

        The processor is named as by `uname -m`.
        """
        return self.flags & 0xFF == _ELF_LIBC6 and self.flags >> 8 == _FLAGS.get(processor)


def parse(data: bytes) -> tuple[Cached, ...]:
    """Return all entries in the order of the file.

    Empty for a damaged or other file: the loader ignores it too.
    """
    try:
        if data.startswith(_NEW):
            return _parse_new(data)
        if data.startswith(_OLD):
            return _parse_old(data)
    except (struct.error, ValueError, IndexError):
        pass
    return ()


def _parse_old(data: bytes) -> tuple[Cached, ...]:
    (count,) = struct.unpack_from("=I", data, 12)
    strings = 16 + 12 * count
    behind = (strings + 7) & ~7
    if data[behind : behind + len(_NEW)] == _NEW:
        return _parse_new(data[behind:])
    found = []
    for index in range(_bounded(count)):
        flags, key, value = struct.unpack_from("=iII", data, 16 + 12 * index)
        found.append(Cached(_string(data, strings + key), _string(data, strings + value), flags))
    return tuple(found)


def _parse_new(data: bytes) -> tuple[Cached, ...]:
    (count,) = struct.unpack_from("=I", data, len(_NEW))
    named = _hwcaps(data)
    found = []
    for index in range(_bounded(count)):
        flags, key, value, _, hwcap = struct.unpack_from("=iIIIQ", data, _NEW_HEADER + 24 * index)
        # Other bits of hwcap name legacy subfolders that no libcuda and no wheel uses.
        if hwcap and not hwcap & _HWCAP_EXTENSION:
            continue
        subfolder = named[hwcap & 0xFFFFFFFF] if hwcap else ""
        found.append(Cached(_string(data, key), _string(data, value), flags, subfolder))
    return tuple(found)


def _hwcaps(data: bytes) -> tuple[str, ...]:
    """Return the names of subfolders that entries reference by number."""
    (start,) = struct.unpack_from("=I", data, 32)
    if not start:
        return ()
    magic, count = struct.unpack_from("=II", data, start)
    if magic != _EXTENSION_MAGIC:
        return ()
    for index in range(_bounded(count)):
        tag, _, offset, size = struct.unpack_from("=IIII", data, start + 8 + 16 * index)
        if tag == _HWCAPS_TAG:
            return tuple(_string(data, at) for at in struct.unpack_from(f"={size // 4}I", data, offset))
    return ()


def _bounded(count: int) -> int:
    if count > _MOST_ENTRIES:
        raise ValueError(f"{count} entries")
    return count


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("utf-8", "surrogateescape")
