"""RECORD files (PEP 376, PEP 427): read them, however broken, and compare files with their entries."""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.system import cache

# The RECORD of torch has 12,000 lines and 1.5 MB.
_LARGEST_RECORD = 64 * 1024 * 1024
_LARGEST_CACHE = 64 * 1024 * 1024
_MOST_CACHED = 300_000
_CHUNK = 1024 * 1024
_SHA256_LENGTH = 32
# Installers write or rewrite these themselves.
_NOT_CONTENT = frozenset(
    {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
)

_PLAIN = re.compile(r'^([^",\r\n]+),sha256=([^",\r\n]*),([^",\r\n]*)\r?$', re.MULTILINE)
_SOUND = re.compile(
    r'^(?:[^",\r\n]{1,8000},[^",\r\n]{0,200},[0-9]*|"[^\r\n]{0,8000}",[^",\r\n]{0,200},[0-9]*)?\r?$',
    re.MULTILINE,
)


# Both are tuples for speed: there are 20,000 files to look at.
class Recorded(NamedTuple):
    """A file's entry in a RECORD: its path below site-packages, digest as written, and size in bytes."""

    path: str
    digest: str
    size: int | None

    @property
    def sha256(self) -> str:
        """The SHA-256 in hexadecimal; empty if the entry has none."""
        try:
            raw = base64.urlsafe_b64decode(self.digest + "=" * (-len(self.digest) % 4))
        except (binascii.Error, ValueError):
            return ""
        return raw.hex() if len(raw) == _SHA256_LENGTH else ""


class Seen(NamedTuple):
    """What was found in place of a recorded file, without reading it."""

    path: str
    status: os.stat_result

    @property
    def key(self) -> str:
        """A key that identifies this content for as long as the file is not written.

        Device, inode, size, and the nanoseconds of the last change of content and of status. The latter
        cannot be set by hand, so an edit that restores the file's time has another key.
        """
        found = self.status
        return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


@dataclass(frozen=True)
class RecordFile:
    """One RECORD, read once."""

    path: Path

    @cached_property
    def _text(self) -> str | None:
        if look(str(self.path)) is None:  # reading a pipe would block
            return None
        try:
            with self.path.open("rb") as file:
                return file.read(_LARGEST_RECORD).decode("utf-8", "replace").replace("\0", "")
        except (OSError, ValueError):
            return None

    def files(self) -> Iterator[Recorded]:
        """Yield the files that are the wheel's content and in site-packages.

        Left out: bytecode, scripts and data outside site-packages (installers rewrite them), files written by
        the installer itself, lines without a SHA-256, and invalid lines. A RECORD that cannot be read yields
        nothing, and `problem` gives the reason.
        """
        own = f"{self.path.parent.name}/"
        text = self._text or ""
        for path, digest, size in (*_PLAIN.findall(text), *_quoted(text)):
            if (
                not path.endswith(".pyc")
                and not path.startswith("/")
                and ".." not in path
                and path.isprintable()
                and not (path.startswith(own) and path[len(own) :] in _NOT_CONTENT)
            ):
                yield Recorded(path, digest, int(size) if size.isdecimal() and len(size) < 19 else None)

    def problem(self) -> str:
        """Return why some or all files cannot be compared with it, as in "its RECORD is ...".

        The result is empty if they can.
        """
        if not os.path.lexists(self.path):
            return "missing"
        if self._text is None:
            return "unreadable"
        if not self._text.strip():
            return "empty"
        lines = self._text.count("\n") + 1
        bad = lines - len(_SOUND.findall(self._text))
        if bad:
            return f"damaged ({bad} of its {lines} lines cannot be read)"
        return "" if "sha256=" in self._text else "without any hash"


def _quoted(text: str) -> Iterator[tuple[str, str, str]]:
    """Parse the few lines with a quoted path: only they need the csv module, which is slower."""
    for line in text.splitlines() if '"' in text else ():
        if '"' not in line:
            continue
        with contextlib.suppress(csv.Error, StopIteration):
            parts = next(csv.reader([line]))
            if len(parts) == 3 and parts[1].startswith("sha256="):
                yield parts[0], parts[1][7:], parts[2]


def look(path: str) -> Seen | None:
    """Examine a file without reading it. Return None if it is no regular file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - 20,000 files, and no Path is needed
    except (OSError, ValueError):
        return None
    return Seen(path, found) if stat.S_ISREG(found.st_mode) else None


@dataclass
class Hashes:
    """SHA-256 of files, remembered between runs in the doctor's cache folder."""

    folder: Path
    _new: dict[str, str] = field(default_factory=dict)

    @cached_property
    def _known(self) -> dict[str, Any]:
        """The results of earlier runs, which may be damaged; read on first use, as there may be 300,000."""
        loaded = cache.read(self._file, _LARGEST_CACHE)
        return loaded if isinstance(loaded, dict) else {}

    def _digest(self, seen: Seen) -> str | None:
        """Return the known digest of a file."""
        known = self._new.get(seen.key) or self._known.get(seen.key)
        return known if isinstance(known, str) and len(known) == 2 * _SHA256_LENGTH else None

    @property
    def _file(self) -> Path:
        return self.folder / "sha256.json"

    def of(self, files: Iterable[Seen]) -> dict[str, str]:
        """Return the SHA-256 of each file by path, in hexadecimal; empty for a file that cannot be read.

        Files are read in parallel: hashing and reading both release the interpreter lock.
        """
        every = list(files)
        unknown = [seen for seen in every if self._digest(seen) is None]
        if unknown:
            threads = min(8, (os.cpu_count() or 1) * 2)
            with TURNS.waiting(), ThreadPoolExecutor(max_workers=threads) as pool:
                for seen, digest in zip(unknown, pool.map(_sha256, unknown), strict=True):
                    self._new[seen.key] = digest
        return {seen.path: self._digest(seen) or "" for seen in every}

    def save(self) -> None:
        """Save new digests for the next run."""
        fresh = {key: digest for key, digest in self._new.items() if digest}
        if not fresh:
            return
        content = fresh if len(self._known) + len(fresh) > _MOST_CACHED else {**self._known, **fresh}
        cache.write(self._file, content)


def _sha256(seen: Seen) -> str:
    digest = hashlib.sha256()
    try:
        with Path(seen.path).open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()
