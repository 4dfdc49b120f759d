"""The GPU code in a compiled library: the architectures that it was compiled for, or can be compiled for.

NVIDIA does not document the format. A section is a sequence of containers, each a header of 16 bytes and
entries; an entry has an uncompressed header with kind, architecture and sizes, even where its code is
compressed. Checked against wheels of xformers, torchvision, torchaudio and bitsandbytes, CUDA 11.8 to 13.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from verl_doctor.toolkit.sources.elf.elf import ElfFile

_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_MAGIC = 0xBA55ED50
_PTX, _CUBIN = 1, 2
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries after it
# Kind, size of this header, size of the code, version of the PTX instruction set, architecture, flags.
_ENTRY = struct.Struct("<H2xIQ8xHHI8xQ")
_SMALLEST_ENTRY = 48
_EXACT = 1 << 20  # sm_90a: for this architecture and no other
_PADDING = 8
_MOST_PADDING = 4096
_MOST_ENTRIES = 500_000


class Entry(NamedTuple):
    """One piece of code.

    PTX or machine code, the architecture (90 is sm_90), the version of PTX, and whether it is sm_90a.
    """

    ptx: bool
    architecture: int
    isa: tuple[int, int]
    exact: bool


def entries_of(file: ElfFile) -> Iterator[Entry]:
    """Yield the entries; equal ones recur for each of a library's many parts. A damaged section ends it."""
    for name in _SECTIONS:
        if (section := file.section(name)) is not None:
            yield from _in_section(file, *section)


def _in_section(file: ElfFile, start: int, size: int) -> Iterator[Entry]:
    at, end = start, start + size
    left, padding = _MOST_ENTRIES, 0
    while at + _CONTAINER.size <= end and left > 0 and padding < _MOST_PADDING:
        head = file.read(at, _CONTAINER.size)
        if len(head) < _CONTAINER.size:
            return
        magic, _, own, content = _CONTAINER.unpack(head)
        if magic != _MAGIC:
            at += _PADDING
            padding += _PADDING
            continue
        entry, at, padding = at + own, at + own + content, 0
        while entry + _ENTRY.size <= min(at, end) and left > 0:
            data = file.read(entry, _ENTRY.size)
            if len(data) < _ENTRY.size:
                return
            kind, header, code, minor, major, architecture, flags = _ENTRY.unpack(data)
            if header < _SMALLEST_ENTRY:
                return
            if kind in {_PTX, _CUBIN}:
                yield Entry(kind == _PTX, architecture, (major, minor), bool(flags & _EXACT))
            entry += header + code
            left -= 1
        left -= 1
