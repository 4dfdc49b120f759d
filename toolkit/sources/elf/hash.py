"""The hash tables in which the loader looks up symbols, to avoid scanning 200,000 of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from verl_doctor.toolkit.sources.elf.bytes import MOST_ENTRIES, SYMBOL, DamagedError, Image

SYMBOLS = 6
_HASH = 4
_GNU_HASH = 0x6FFFFEF5
_BLOCK = 4096
_NONE = memoryview(b"").cast("I")


def hash_table(image: Image) -> GnuHash | SysvHash:
    """Return the table that the loader would use. Raises one of DAMAGE."""
    return GnuHash(image) if _GNU_HASH in image.dynamic else SysvHash(image)


class GnuHash:
    """DT_GNU_HASH: a Bloom filter, buckets, and one hash for each exported symbol (glibc, elf/dl-lookup.c).

    The exported symbols are the last ones of the symbol table, from `first` on, in the order of their
    buckets.
    """

    def __init__(self, image: Image) -> None:
        where = image.offset(image.dynamic[_GNU_HASH])
        buckets, self.first, words, self._shift = struct.unpack("=IIII", image.read(where, 16))
        if not buckets or not words:
            raise DamagedError("its hash table is invalid")
        self._bloom = memoryview(image.read(where + 16, 8 * words)).cast("Q")
        self._buckets = memoryview(image.read(where + 16 + 8 * words, 4 * buckets)).cast("I")
        self._hashes = _NONE
        last = max(self._buckets)
        if last and last >= self.first:
            chains = where + 16 + 8 * words + 4 * buckets
            count = last - self.first + _chain_length(image, chains + 4 * (last - self.first))
            self._hashes = memoryview(image.read(chains, 4 * count)).cast("I")
        self._names = _Names(image, self.first + len(self._hashes) if self._hashes else 0)

    @property
    def undefined_before(self) -> int | None:
        """The number of symbols that includes all undefined ones.

        A table that hashes nothing does not hold it.
        """
        return self.first if self._hashes else None

    def find(self, name: bytes) -> Iterator[int]:
        """Yield the indexes of the exported symbols of this name: one for each of its versions."""
        code = _gnu_hash(name)
        word = self._bloom[code // 64 % len(self._bloom)]
        if not (word >> (code % 64)) & (word >> ((code >> self._shift) % 64)) & 1:
            return
        start = self._buckets[code % len(self._buckets)] - self.first
        for index in range(start, len(self._hashes)) if start >= 0 else ():
            here = self._hashes[index]
            # The lowest bit ends a chain and is no part of the hash.
            if (here | 1) == (code | 1) and self._names.is_export(index + self.first, name):
                yield index + self.first
            if here & 1:
                return


class SysvHash:
    """DT_HASH: buckets and chains of symbol indexes in old linkers' libraries (generic ABI, "Hash Table")."""

    def __init__(self, image: Image) -> None:
        self._buckets = self._chains = _NONE
        if _HASH in image.dynamic:
            where = image.offset(image.dynamic[_HASH])
            buckets, count = struct.unpack("=II", image.read(where, 8))
            self._buckets = memoryview(image.read(where + 8, 4 * buckets)).cast("I")
            self._chains = memoryview(image.read(where + 8 + 4 * buckets, 4 * count)).cast("I")
        self._names = _Names(image, len(self._chains))

    @property
    def undefined_before(self) -> int | None:
        """The number of symbols that includes all undefined ones: all symbols here."""
        return len(self._chains) if self._buckets else None

    def find(self, name: bytes) -> Iterator[int]:
        """Yield the indexes of the exported symbols of this name."""
        index = self._buckets[_sysv_hash(name) % len(self._buckets)] if self._buckets else 0
        for _ in range(len(self._chains)):
            if not 0 < index < len(self._chains):
                return
            if self._names.is_export(index, name):
                yield index
            index = self._chains[index]


class _Names:
    """The symbol table, to compare an entry with the name looked for."""

    def __init__(self, image: Image, count: int) -> None:
        self._symbols = image.table(SYMBOLS, SYMBOL.size * count)
        self._strings = image.strings

    def is_export(self, index: int, name: bytes) -> bool:
        start, info, _, section, _, _ = SYMBOL.unpack_from(self._symbols, index * SYMBOL.size)
        return bool(section and info >> 4) and self._strings[start : start + len(name) + 1] == name + b"\0"


def _chain_length(image: Image, where: int) -> int:
    """Return the number of hashes from here to the end of the chain, which an odd hash marks."""
    for start in range(0, 4 * MOST_ENTRIES, _BLOCK):
        data = image.read_some(where + start, _BLOCK)
        hashes = memoryview(data[: len(data) // 4 * 4]).cast("I")
        if (end := next((index for index, code in enumerate(hashes) if code & 1), None)) is not None:
            return start // 4 + end + 1
        if len(data) < _BLOCK:
            break
    raise DamagedError("its hash table does not end")


def _gnu_hash(name: bytes) -> int:
    code = 5381
    for byte in name:
        code = (code * 33 + byte) & 0xFFFFFFFF
    return code


def _sysv_hash(name: bytes) -> int:
    code = 0
    for byte in name:
        code = (code << 4) + byte
        high = code & 0xF0000000
        code = (code ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return code
