"""Where logs are read from: files, folders of them, standard input; as they are, or packed with gzip or zstd.

What cannot be read is passed over with a note, for one bad file must not hide what the others tell.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from verl_doctor.toolkit.answering import why_silent
from verl_doctor.toolkit.log_excerpt import CUT_OFF
from verl_doctor.toolkit.refused import reason_of
from verl_doctor.toolkit.target import UsageError

STDIN = "-"
_LOGS = (".log", ".out", ".err", ".txt", ".gz", ".zst")
_SAMPLE = 8192  # bytes from which it is told what a file is
_BLOCK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NULS = 1 << 28  # bytes of nothing before the first word of a log
_MOST = 5000  # files of a folder that are read
_SEEN = 100_000  # files of a folder from which those are chosen

Read = Callable[[int], bytes]


@dataclass(frozen=True)
class Source:
    """One log: how the user would name it, and how it is opened."""

    name: str
    path: Path | None


class UnreadableError(Exception):
    """A log that cannot be read, and why in words."""


def sources_of(named: Iterable[str], note: Callable[[str], None] = lambda _: None) -> list[Source]:
    """The logs that were named, of folders those in them at any depth. `note` is told what is left out. Raises UsageError."""
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
                    f"{name}: no log in this folder (files ending in {', '.join(_LOGS)}); name the files themselves"
                )
            if len(inside) > _MOST:
                note(f"{name} holds {len(inside):,} logs; the {len(inside) - _MOST:,} smallest were not read")
            for path in _telling(inside):
                found.setdefault(os.path.realpath(path), Source(str(path), path))
        elif not os.path.exists(name):
            raise UsageError(
                f"{name}: there is no such file; name the log of the run, or - for standard input"
            )
        else:
            found.setdefault(os.path.realpath(name), Source(name, Path(name)))
    return list(found.values())


def _in_folder(folder: Path) -> dict[Path, int]:
    """Its logs with their sizes. Folders behind links are not entered, pipes not waited for."""
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


def _telling(logs: Mapping[Path, int]) -> list[Path]:
    """As many as are read, Ray's own before the largest of its workers': in the order in which they tell most."""
    largest = sorted(logs, key=lambda path: (path.name.startswith("worker-"), -logs[path]))
    return sorted(largest[:_MOST], key=lambda path: (_importance(path), path))


def _importance(path: Path) -> int:
    for rank, begin in enumerate(("job-driver", "worker-", "raylet", "gcs_server")):
        if path.name.startswith(begin):
            return rank if rank < 2 else rank + 2
    return 3 if path.name.startswith(("python-core", "runtime_env", "dashboard", "monitor")) else 2


@contextlib.contextmanager
def opened(source: Source) -> Iterator[Read]:
    """How to read its content, unpacked. Raises UnreadableError, also while it is read."""
    with contextlib.ExitStack() as stack:
        try:
            raw: BinaryIO = (
                sys.stdin.buffer if source.path is None else stack.enter_context(source.path.open("rb"))
            )
            begin = _after_nuls(raw)
            read = _whole(begin, raw)
            if begin.startswith(_GZIP):
                read = stack.enter_context(gzip.GzipFile(fileobj=_File(read))).read1
            elif begin.startswith(_ZSTD):
                read = _unpacked_zstd(read, source, stack)
            elif begin.startswith(_UTF16):
                read = _as_utf8(read)
            elif begin.count(b"\0") > len(begin) // 20:
                raise UnreadableError("it is no text")
            yield read
        except CUT_OFF as error:
            raise UnreadableError(reason_of(error)) from None


def _after_nuls(raw: BinaryIO) -> bytes:
    """The first bytes behind the NULs with which a log begins that was emptied (logrotate's `copytruncate`) while somebody wrote it."""
    with contextlib.suppress(OSError):  # a pipe, or a file system that knows no holes
        raw.seek(os.lseek(raw.fileno(), raw.tell(), os.SEEK_DATA))
    begin, passed = raw.read(_SAMPLE), 0
    while passed < _NULS and not begin.strip(b"\0") and (more := raw.read(_BLOCK)):
        passed += len(begin)
        begin = more
    return begin.lstrip(b"\0") or begin


def _whole(begin: bytes, raw: BinaryIO) -> Read:
    """Read what was looked at already, then the rest."""
    kept = [begin]

    def read(size: int) -> bytes:
        return kept.pop() if kept else raw.read(size) or b""

    return read


class _File(io.RawIOBase):
    """A reader as the file that gzip wants."""

    def __init__(self, read: Read) -> None:
        self._from, self._rest = read, b""

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most so many."""
        content = self._rest or self._from(1 << 16)
        self._rest = content[size:] if size >= 0 else b""
        return content[:size] if size >= 0 else content


def _as_utf8(read: Read) -> Read:
    """PowerShell's redirections write UTF-16."""
    stream = io.TextIOWrapper(io.BufferedReader(_Chunks(read)), "utf-16", "replace", newline="")
    return lambda size: stream.read(size // 4).encode()


class _Chunks(io.RawIOBase):
    """A reader as the raw file that Python's decoders want."""

    def __init__(self, read: Read) -> None:
        self._file = _File(read)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a part of the buffer."""
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def _unpacked_zstd(read: Read, source: Source, stack: contextlib.ExitStack) -> Read:
    """By the standard library (Python 3.14), the package `zstandard` or the program `zstd`, whichever is there."""
    try:
        from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415

        return stack.enter_context(zstd.ZstdFile(_File(read))).read  # type: ignore[no-any-return]
    except ImportError:
        pass
    try:
        import zstandard  # type: ignore[import-not-found]  # noqa: PLC0415

        return zstandard.ZstdDecompressor().stream_reader(_File(read)).read  # type: ignore[no-any-return]
    except ImportError:
        pass
    if source.path is None or shutil.which("zstd") is None:
        raise UnreadableError(
            "it is packed with zstd, and nothing here unpacks that; install zstd, or pipe it in unpacked"
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
    if out is None:  # it is a pipe, as was asked
        raise UnreadableError("zstd gives no output")
    stack.callback(out.close)

    def unpacked(size: int) -> bytes:
        chunk = out.read(size)
        if not chunk and child.wait() != 0:
            raise EOFError("zstd could not unpack it to its end")
        return chunk

    return unpacked
