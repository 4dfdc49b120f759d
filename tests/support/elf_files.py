"""Small ELF files for recorded machines: everything that the loader's search reads, and no code."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

X86_64, AARCH64 = 62, 183
LOADER = "/lib64/ld-linux-x86-64.so.2"
_HEADER, _SEGMENT, _SYMBOL = 64, 56, 24  # bytes
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME, _RPATH, _RUNPATH = 1, 4, 5, 6, 10, 11, 14, 15, 29
_LOAD, _DYNAMIC, _INTERP = 1, 2, 3


def elf(
    *,
    soname: str = "",
    needed: Iterable[str] = (),
    rpath: str = "",
    runpath: str = "",
    interpreter: str = "",
    imports: Iterable[str] = (),
    exports: Iterable[str] = (),
    bits: int = 64,
    machine: int = X86_64,
    contents: bytes = b"",
) -> bytes:
    """Return the bytes of a little-endian library, or of a program when it has an interpreter. Addresses are file offsets.

    A 32-bit file consists of the identification only.
    """
    kind = struct.pack("<4sBBBB8xHHI", b"\x7fELF", bits // 32, 1, 1, 0, 3, machine, 1)
    if bits != 64:
        return kind + bytes(64)
    strings = bytearray(b"\0")

    def string(text: str) -> int:
        at = len(strings)
        strings.extend(text.encode() + b"\0")
        return at

    names = [(_NEEDED, name) for name in needed]
    names += [(tag, text) for tag, text in ((_SONAME, soname), (_RPATH, rpath), (_RUNPATH, runpath)) if text]
    tags = [(tag, string(text)) for tag, text in names]
    symbols = [bytes(_SYMBOL)]
    symbols += [struct.pack("<IBBHQQ", string(name), 0x12, 0, 0, 0, 0) for name in imports]
    symbols += [struct.pack("<IBBHQQ", string(name), 0x12, 0, 1, 64, 1) for name in exports]
    interp = interpreter.encode() + b"\0"
    start = _HEADER + 3 * _SEGMENT
    strings_at = start + len(interp)
    symbols_at = strings_at + len(strings)
    hash_at = symbols_at + _SYMBOL * len(symbols)
    hashes = struct.pack("<IIII", 1, len(symbols), 0, 0) + bytes(4 * (len(symbols) - 1))
    dynamic_at = hash_at + len(hashes)
    tags += [(_STRTAB, strings_at), (_STRSZ, len(strings)), (_SYMTAB, symbols_at), (_SYMENT, _SYMBOL)]
    tags += [(_HASH, hash_at), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    end = dynamic_at + len(dynamic)

    def segment(form: int, at: int, size: int) -> bytes:
        return struct.pack("<IIQQQQQQ", form, 4, at, at, at, size, size, 1)

    header = kind + struct.pack("<QQQIHHHHHH", 0, _HEADER, 0, 0, _HEADER, _SEGMENT, 3, 0, 0, 0)
    segments = segment(_LOAD, 0, end) + segment(_DYNAMIC, dynamic_at, len(dynamic))
    segments += segment(_INTERP, start, len(interp)) if interpreter else segment(0, 0, 0)
    return header + segments + interp + bytes(strings) + b"".join(symbols) + hashes + dynamic + contents


def place(root: Path, path: str, content: bytes | str) -> None:
    """Put a file below a recorded machine's root; a text is the target of a link."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        file.symlink_to(content)
    else:
        file.write_bytes(content)


def cache(entries: Iterable[tuple[str, str] | tuple[str, str, int]], levels: tuple[str, ...] = ()) -> bytes:
    """An /etc/ld.so.cache of x86-64 libraries: soname, path, and the number of a processor level where it has one."""
    rows = list(entries)
    strings = bytearray()
    base = 48 + 24 * len(rows)

    def string(text: str) -> int:
        at = base + len(strings)
        strings.extend(text.encode() + b"\0")
        return at

    packed = b"".join(
        struct.pack(
            "<iIIIQ", 0x0303, string(row[0]), string(row[1]), 0, (1 << 62 | row[2]) if len(row) > 2 else 0
        )
        for row in rows
    )
    names = [string(level) for level in levels]
    extension = base + len(strings) if levels else 0
    table = struct.pack("<IIIIII", 0xEAA42174, 1, 1, 0, extension + 24, 4 * len(names)) if levels else b""
    header = struct.pack("<20sIIBxxxI12x", b"glibc-ld.so.cache1.1", len(rows), len(strings), 2, extension)
    return header + packed + bytes(strings) + table + struct.pack(f"<{len(names)}I", *names)
