"""The bytes of an ELF file at the loader's addresses, and the entries of its dynamic section.

These are the addresses at which the loader finds the bytes.

Read with `pread` into memory and never mapped: a mapped file that is truncated while it is read, or a failing
network file system, ends the process with SIGBUS.
"""

from __future__ import annotations

import itertools
import os
import struct
import sys

MOST_ENTRIES = 100_000
SYMBOL = struct.Struct("=IBBHQQ")
"""Elf64_Sym: name, binding and type, visibility, section (0 if undefined), value, size."""

# The tables of libtorch_cuda.so, among the largest known, take 20 MB each.
_LARGEST_TABLE = 512 * 1024 * 1024
_MOST_HEADERS = 4096
_LONGEST_NAME = 64 * 1024
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_STRTAB, _STRSZ = 5, 10

# e_machine, under the names that `uname -m` gives these processors.
_MACHINES = {3: "i386", 21: "ppc64le", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


class DamagedError(Exception):
    """An offset in the file is invalid."""


DAMAGE = (DamagedError, struct.error, ValueError, IndexError, OverflowError, MemoryError, OSError)
"""The errors that reading tables of a damaged file may raise."""


class Image:
    """An open file. Every method raises one of DAMAGE if the file does not contain the requested data.

    `interpreter` is the loader that a program names. `entries` is the dynamic section in its order, empty for
    a statically linked program, and for a file that no process on a machine like this one loads: 32-bit, or
    with the other byte order.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._loads: list[tuple[int, int, int]] = []
        self.bits = 0
        self.machine = ""
        self.interpreter = ""
        self.entries: list[tuple[int, int]] = []
        self.dynamic: dict[int, int] = {}
        self.strings = b""

    def read_headers(self) -> None:
        """Read the headers that locate everything else."""
        ident = self.read_some(0, 64)
        if ident[:4] != b"\x7fELF" or len(ident) < 52:
            raise DamagedError("it is not an ELF file" if ident else "it is empty")
        order = "little" if ident[5] == 1 else "big"
        number = int.from_bytes(ident[18:20], "little" if ident[5] == 1 else "big")
        self.bits = {1: 32, 2: 64}.get(ident[4], 0)
        self.machine = _MACHINES.get(number, f"machine {number}")
        if self.bits == 64 and order == sys.byteorder:
            self._read_segments(*struct.unpack_from("=Q14xHH", ident, 0x20))
            self.dynamic = dict(self.entries)
            self.strings = self.table(_STRTAB, self.dynamic.get(_STRSZ, 0))

    def _read_segments(self, offset: int, entry: int, count: int) -> None:
        if entry < 56 or count > _MOST_HEADERS:
            raise DamagedError("its program headers are invalid")
        for index in range(count):
            kind, _, where, address, _, size = struct.unpack("=IIQQQQ", self.read(offset + entry * index, 40))
            if kind == _PT_LOAD:
                self._loads.append((address, size, where))
            elif kind == _PT_INTERP:
                self.interpreter = os.fsdecode(self.read(where, min(size, _LONGEST_NAME)).rstrip(b"\0"))
            elif kind == _PT_DYNAMIC:
                data = self.read(where, min(size // 16, MOST_ENTRIES) * 16)
                self.entries = list(
                    itertools.takewhile(lambda pair: pair[0], struct.iter_unpack("=QQ", data))
                )

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly so many bytes of the file."""
        if size > _LARGEST_TABLE or offset + size > self._size:
            raise DamagedError("it is truncated, or an offset in it is invalid")
        data = b""
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                raise DamagedError("it ends too early")
            data += more
        return data

    def read_some(self, offset: int, most: int) -> bytes:
        """Return the bytes of the file from here on, fewer if it ends."""
        return os.pread(self._descriptor, most, offset)

    def table(self, tag: int, size: int) -> bytes:
        """Return the first bytes of a table that the dynamic section names; none if it names none."""
        return self.read(self.offset(self.dynamic[tag]), size) if tag in self.dynamic else b""

    def offset(self, address: int) -> int:
        """Return the file offset of what the loader finds at an address."""
        for start, size, where in self._loads:
            if start <= address < start + size:
                return address - start + where
        raise DamagedError("an address in it is outside all segments")

    def string(self, start: int) -> str:
        """Return a name from the string table."""
        end = self.strings.find(b"\0", start, start + _LONGEST_NAME)
        if not 0 <= start < len(self.strings) or end < 0:
            raise DamagedError("the offset of a name in it is invalid")
        return self.strings[start:end].decode("utf-8", "surrogateescape")

    def section(self, name: str) -> tuple[int, int] | None:
        """Return offset and size of a section by name.

        None if section headers are stripped or no section has the name.
        """
        (offset,) = struct.unpack("=Q", self.read(0x28, 8))
        entry, count, names = struct.unpack("=HHH", self.read(0x3A, 6))
        if entry < 64 or not names < count <= _MOST_HEADERS:
            return None
        headers = [struct.unpack("=IIQQQQ", self.read(offset + entry * index, 40)) for index in range(count)]
        table = self.read(headers[names][4], headers[names][5])
        wanted = name.encode() + b"\0"
        for start, _, _, _, where, size in headers:
            if table[start : start + len(wanted)] == wanted and where + size <= self._size:
                return where, size
        return None
