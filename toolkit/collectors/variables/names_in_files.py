"""Finds names of variables by their prefixes in Python sources, and in compiled programs and libraries.

A compiled program holds each name that it reads as a whole string, unless it builds the name at run time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_WORD = re.compile(rb"[A-Za-z0-9_]+")
_PIECE = 8 * 1024 * 1024  # bytes read at a time: a library may have a gigabyte
_LONGEST = 256  # bytes of a name, which may span two pieces
# What follows the known part of a composed name: `{kind}` of an f-string or a format, `%s`, or `" +`.
_HOLE = re.compile(rb"""(?:\{[^{}\n"']*\}|%s)([A-Za-z0-9_]*)|["']\s*[+%]""")


@dataclass(frozen=True)
class SourceNames:
    """The names in one source file that have the wanted prefixes.

    `words` are whole names, `built` the prefixes and suffixes of names that are composed there.
    """

    path: Path
    content: bytes
    words: frozenset[str]
    built: frozenset[tuple[str, str]]


def in_sources(files: Iterable[Path], prefixes: Iterable[str]) -> Iterator[SourceNames]:
    """Yield the source files in which some word has a prefix. Unreadable files are skipped."""
    beginnings = [prefix.encode() for prefix in prefixes]
    for path in files:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        words = [word for word in _words(content, beginnings) if _is_whole(word)]
        if words:
            holes = [(word, hole) for word in words if (hole := _HOLE.match(content, word.end()))]
            built = frozenset((word[0].decode(), (hole[1] or b"").decode()) for word, hole in holes)
            yield SourceNames(path, content, frozenset(word[0].decode() for word in words), built)


def _is_whole(word: re.Match[bytes]) -> bool:
    begin = word.start()
    return begin == 0 or not _WORD.match(word.string[begin - 1 : begin])


def in_compiled(path: Path, prefixes: Iterable[str], deadline: float) -> frozenset[str]:
    """Return the words of a compiled file from a prefix on, wherever in a longer word it occurs.

    Empty if unreadable.

    Raises TimeoutError when `time.monotonic()` passes the deadline: a large file may be on a slow share.
    """
    beginnings = [prefix.encode() for prefix in prefixes]
    found: set[str] = set()
    for content, goes_on in _pieces(path):
        if time.monotonic() > deadline:
            raise TimeoutError
        words = (word for word in _words(content, beginnings) if word.end() < len(content) or not goes_on)
        found.update(word[0].decode() for word in words)
    return frozenset(found)


def _pieces(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield the content of a file in overlapping pieces, and whether another one follows.

    Nothing if it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rest = b""
        while piece := os.read(descriptor, _PIECE):
            yield rest + piece, True
            rest = (rest + piece)[-_LONGEST:]
        yield rest, False
    except OSError:
        return
    finally:
        os.close(descriptor)


def _words(content: bytes, beginnings: Iterable[bytes]) -> Iterator[re.Match[bytes]]:
    """Yield every word, or end of a word, that begins with a prefix."""
    for beginning in beginnings:
        position = content.find(beginning)
        while position >= 0:
            if word := _WORD.match(content, position):
                yield word
            position = content.find(beginning, position + 1)
