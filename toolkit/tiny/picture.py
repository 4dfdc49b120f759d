"""Small PNG pictures with the same bytes on every machine."""

from __future__ import annotations

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_EIGHT_BITS, _COLOURS = 8, 2  # bits per colour; red, green and blue


def plain(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    """Return a picture of one colour.

    Its rows are stored uncompressed, because a compressor's output depends on its release.
    https://www.w3.org/TR/png-3
    """
    rows = (b"\0" + bytes(colour) * width) * height
    head = struct.pack(">IIBBBBB", width, height, _EIGHT_BITS, _COLOURS, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows, 0)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
