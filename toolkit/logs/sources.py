"""Sources of logs: files, folders of files, standard input; plain, or compressed with gzip or zstd.

Unreadable sources are skipped with a note: one bad file must not hide what the others show.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from verl_doctor.toolkit.logs.excerpt import CUT_OFF
from verl_doctor.toolkit.system.errors import reason_of
from verl_doctor.toolkit.system.silent_path import why_silent
from verl_doctor.toolkit.target import UsageError
from verl_doctor.toolkit.text import in_bytes

STDIN = "-"
_LOGS = (".log", ".out", ".err", ".txt", ".gz", ".zst")
_SAMPLE = 8192  # bytes from which a file's type is detected
_BLOCK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PACKED = (_GZIP, _ZSTD, b"BZh", b"\xfd7zXZ", b"PK\x03\x04")  # also bzip2, xz and zip
# Control characters that do not occur in logs: all except the bell, blanks, line ends, backspace, and the
# escape that begins a colour.
_CONTROLS = bytes(code for code in range(32) if code not in {*range(7, 14), 27})
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
MOST_READ = 1 << 36
"""The number of bytes that are read of one log, and to which a compressed one may unpack."""
_UNSUSPICIOUS = 1 << 28  # bytes to which any log may unpack, however small it is
MOST_FOR_ONE = 100
"""Unpacked bytes allowed per compressed byte of a larger log.

Logs shrink to a tenth or a fiftieth, a bomb to far less.
"""
_EMPTY = 1 << 23  # compressed bytes that may unpack to nothing: headers, empty members, frames to be skipped
_STEP = 2048  # compressed bytes of zstd at a time, which may unpack to 64 MiB
_PIPE_TIMEOUT = 10.0  # seconds to wait for a pipe's first bytes
_MOST_LETTERS = 0.4  # the minimum share of ASCII among the characters of a log in UTF-16
_NULS = 1 << 28  # NUL bytes before the first word of a log
_MOST = 5000  # files of a folder that are read
_SEEN = 100_000  # files of a folder that are considered

Read = Callable[[int], bytes]


@dataclass(frozen=True)
class Source:
    """One log: its name as the user would write it, and how it is opened."""

    name: str
    path: Path | None


class UnreadableError(Exception):
    """A log that cannot be read; the message is the reason."""


def sources_of(named: Iterable[str], note: Callable[[str], None] = lambda _: None) -> list[Source]:
    """Return the named logs, and those at any depth in named folders.

    `note` receives what was left out. Raises UsageError.
    """
    found: dict[str, Source] = {}
    for name in named:
        if name == STDIN:
            found.setdefault(STDIN, Source("stdin", None))
        elif why := why_silent(name):
            note(f"{name} was not read: {why}")
        elif os.path.isdir(name):
            inside = _in_folder(Path(name))
            if not inside:
                raise UsageError(
                    f"{name}: no log in this folder (files ending in {', '.join(_LOGS)}); name the "
                    "files themselves"
                )
            if len(inside) > _MOST:
                note(f"{name} holds {len(inside):,} logs; the {len(inside) - _MOST:,} smallest were not read")
            for path in _most_informative(inside):
                found.setdefault(os.path.realpath(path), Source(str(path), path))
        elif not os.path.exists(name):
            raise UsageError(f"{name}: no such file; name the log of the run, or - for standard input")
        else:
            found.setdefault(os.path.realpath(name), Source(name, Path(name)))
    return list(found.values())


def _in_folder(folder: Path) -> dict[Path, int]:
    """Return the logs in a folder with their sizes.

    Links to folders are not followed, and pipes are not opened.
    """
    found: dict[Path, int] = {}
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith(_LOGS) or ".log." in name:
                path = Path(place, name)
                with contextlib.suppress(OSError):
                    known = path.stat()
                    if stat.S_ISREG(known.st_mode):
                        found[path] = known.st_size
        if len(found) >= _SEEN:
            break
    return found


def _most_informative(logs: Mapping[Path, int]) -> list[Path]:
    """Return the logs to read within the limit, the most informative first.

    Ray's own logs come before the largest of its workers'.
    """
    largest = sorted(logs, key=lambda path: (path.name.startswith("worker-"), -logs[path]))
    return sorted(largest[:_MOST], key=lambda path: (_importance(path), path))


def _importance(path: Path) -> int:
    for rank, begin in enumerate(("job-driver", "worker-", "raylet", "gcs_server")):
        if path.name.startswith(begin):
            return rank if rank < 2 else rank + 2
    return 3 if path.name.startswith(("python-core", "runtime_env", "dashboard", "monitor")) else 2


@contextlib.contextmanager
def opened(source: Source) -> Iterator[Read]:
    """Yield a reader of the unpacked content. Raises UnreadableError, also while reading."""
    with contextlib.ExitStack() as stack:
        try:
            raw: BinaryIO = (
                sys.stdin.buffer if source.path is None else stack.enter_context(_opened(source.path))
            )
            begin = _after_nuls(raw)
            packed = _Counted(_whole(begin, raw))
            read: Read = packed.read
            if begin.startswith(_GZIP):
                packed.waits_for_content = True
                unpacked = stack.enter_context(gzip.GzipFile(fileobj=_File(read))).read1
                read = _of_text(_limited(unpacked, packed))
            elif begin.startswith(_ZSTD):
                packed.waits_for_content = True
                read = _of_text(_limited(_unpacked_zstd(read, source, stack), packed))
            elif (encoding := _utf16(begin)) is not None:
                read = _as_utf8(read, encoding)
            elif _is_not_text(begin):
                raise UnreadableError("it is not text")
            else:
                read = _ending(packed)
            yield read
        except CUT_OFF as error:
            raise UnreadableError(reason_of(error)) from None


def _is_not_text(begin: bytes) -> bool:
    return begin.startswith(_PACKED) or len(begin) - len(begin.translate(None, _CONTROLS)) > len(begin) // 20


def _of_text(unpacked: Read) -> Read:
    """Return a reader that raises UnreadableError if the unpacked content is not text."""
    begun = False

    def read(size: int) -> bytes:
        nonlocal begun
        content = unpacked(size)
        if not begun and _is_not_text(content[:_SAMPLE].replace(b"\0", b"")):
            raise UnreadableError("its unpacked content is not text")
        begun = True
        return content

    return read


def _opened(path: Path) -> BinaryIO:
    """Open a file without unpacking it.

    Waits for the first bytes of a pipe, with a timeout. Raises OSError and UnreadableError.
    """
    if not stat.S_ISFIFO(path.stat().st_mode):
        return path.open("rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(_PIPE_TIMEOUT * 1000):
        os.close(descriptor)
        raise UnreadableError(f"it is a pipe to which nothing was written for {_PIPE_TIMEOUT:.0f} s")
    os.set_blocking(descriptor, True)
    return open(descriptor, "rb")  # noqa: PTH123 - it is open already


class _Counted:
    """A reader that counts the bytes it returned.

    `used` of them have unpacked to something, if it `waits_for_content`.
    """

    def __init__(self, read: Read) -> None:
        self._from, self.given, self.used = read, 0, 0
        self.waits_for_content = False

    def read(self, size: int) -> bytes:
        if self.waits_for_content and self.given - self.used > _EMPTY:
            raise ValueError(f"{in_bytes(self.given - self.used)} of it unpack to nothing")
        content = self._from(size)
        self.given += len(content)
        return content


def _ending(plain: _Counted) -> Read:
    """Return a reader that raises ValueError at the end of what is read of one log.

    What writes to a pipe may never end.
    """

    def read(size: int) -> bytes:
        if plain.given > MOST_READ:
            raise ValueError(f"only its first {in_bytes(MOST_READ)} were read")
        return plain.read(size)

    return read


def _limited(unpacked: Read, packed: _Counted) -> Read:
    """Return a reader that raises ValueError if a file unpacks to more than any log does.

    A few megabytes could take days.
    """
    so_far = 0

    def read(size: int) -> bytes:
        nonlocal so_far
        content = unpacked(min(size, _BLOCK))
        so_far += len(content)
        packed.used = packed.given
        if so_far > MOST_READ or so_far > max(_UNSUSPICIOUS, MOST_FOR_ONE * packed.given):
            raise ValueError(
                f"{in_bytes(packed.given)} of it unpack to more than {in_bytes(so_far)}, which no log does; "
                "unpack it yourself to have all of it read"
            )
        return content

    return read


def _after_nuls(raw: BinaryIO) -> bytes:
    """Return the first bytes after the NULs of a log that was emptied while it was being written.

    An example is logrotate's `copytruncate`.
    """
    with contextlib.suppress(OSError):  # a pipe, or a file system without holes
        raw.seek(os.lseek(raw.fileno(), raw.tell(), os.SEEK_DATA))
    begin, passed = raw.read(_SAMPLE), 0
    while passed < _NULS and not begin.strip(b"\0") and (more := raw.read(_BLOCK)):
        passed += len(begin)
        begin = more
    return begin.lstrip(b"\0") or begin


def _whole(begin: bytes, raw: BinaryIO) -> Read:
    """Return a reader of the bytes that were already inspected, followed by the rest."""
    kept = begin

    def read(size: int) -> bytes:
        nonlocal kept
        if kept:
            content, kept = kept[:size], kept[size:]
            return content
        return raw.read(size) or b""

    return read


class _File(io.RawIOBase):
    """Adapts a reader to the file object that gzip expects."""

    def __init__(self, read: Read) -> None:
        self._from, self._rest, self._at = read, b"", 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        if self._at == len(self._rest):
            self._rest, self._at = self._from(1 << 16), 0
        begin, self._at = self._at, len(self._rest) if size < 0 else min(self._at + size, len(self._rest))
        return self._rest[begin : self._at]


def _utf16(begin: bytes) -> str | None:
    """Return the UTF-16 variant, or None for other text.

    The text has the mark of UTF-16, or it has none and every other byte of most letters is 0.
    """
    if begin.startswith(_UTF16):
        return "utf-16"
    half = len(begin) // 2
    nuls = begin[: 2 * half : 2].count(0), begin[1 : 2 * half : 2].count(0)
    encoding = "utf-16-le" if nuls[1] > nuls[0] else "utf-16-be"
    if not half or max(nuls) < _MOST_LETTERS * half or min(nuls) > half / 20:
        return None
    text = begin[: 2 * half].decode(encoding, "replace")
    return (
        encoding if sum(letter.isprintable() or letter.isspace() for letter in text) > 0.95 * half else None
    )


def _as_utf8(read: Read, encoding: str) -> Read:
    """Return a reader of UTF-16, as PowerShell's redirections write it, that returns UTF-8."""
    stream = io.TextIOWrapper(io.BufferedReader(_Chunks(read)), encoding, "replace", newline="")
    return lambda size: stream.read(size // 4).encode()


class _Chunks(io.RawIOBase):
    """Adapts a reader to the raw file that Python's decoders expect."""

    def __init__(self, read: Read) -> None:
        self._file = _File(read)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a part of the buffer."""
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


class _Frames:
    """An incremental reader of zstd frames.

    It returns all complete blocks of a truncated file before it raises EOFError.
    """

    def __init__(self, decoder: Callable[[], Any], read: Read) -> None:
        self._new, self._from = decoder, read
        self._decoder: Any = None

    def read(self, _size: int) -> bytes:
        while content := self._from(_STEP):
            if self._decoder is None or self._decoder.eof:
                content = (self._decoder.unused_data if self._decoder else b"") + content
                self._decoder = self._new()
            if unpacked := self._decoder.decompress(content):
                return bytes(unpacked)
        if self._decoder is not None and not self._decoder.eof:
            raise EOFError("it ends in the middle")
        return b""


def _unpacked_zstd(read: Read, source: Source, stack: contextlib.ExitStack) -> Read:
    """Unpack with the standard library, a package or a program, whichever is available.

    These are Python 3.14, the package `zstandard` and the program `zstd`.
    """
    try:
        from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415

        return _Frames(zstd.ZstdDecompressor, read).read
    except ImportError:
        pass
    try:
        import zstandard  # type: ignore[import-not-found]  # noqa: PLC0415

        return _Frames(zstandard.ZstdDecompressor().decompressobj, read).read
    except ImportError:
        pass
    if source.path is None or shutil.which("zstd") is None:
        raise UnreadableError(
            "it is compressed with zstd, which nothing here can unpack; install zstd, or pipe the "
            "unpacked log in"
        )
    child = subprocess.Popen(
        ["zstd", "-dcq", "--", str(source.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(child.wait)
    stack.callback(child.kill)
    out = child.stdout
    if out is None:  # it is a pipe, as requested
        raise UnreadableError("zstd prints no output")
    stack.callback(out.close)

    def unpacked(size: int) -> bytes:
        chunk = out.read(size)
        if not chunk and child.wait() != 0:
            raise EOFError("zstd could not unpack it to its end")
        return chunk

    return unpacked
