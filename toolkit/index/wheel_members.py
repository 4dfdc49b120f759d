"""Choose the members of a wheel that define what its code reads and offers, and extract them."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.index.wheel_ranges import RangedFile
from verl_doctor.toolkit.text import counted, harmless

_SOURCES = (".py", ".yaml", "/version")
_COMPILED = (".so", ".pyd")
# Small compiled modules are extracted whole: like the large ones they name the CUDA runtime that vLLM was
# built for.
_SMALL_MODULE = 256 * 1024
_MOST = 600_000_000  # bytes, unpacked: ten times what vLLM 0.33.0 has
_MOST_MEMBERS = 200_000
# Ranges with a smaller gap than this are one request: a request costs more than these bytes.
_GAP = 64 * 1024
# A file up to this size is one request.
_SMALL_WHEEL = 4_000_000
_NO_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    MemoryError,
)


class WheelError(Exception):
    """The sources cannot be read from this wheel: one sentence."""


def unpack(file: Path | RangedFile, filename: str, folder: Path) -> None:
    """Write the sources and the metadata of a wheel below `folder`, with empty files for compiled modules.

    Each member's checksum is verified. Raises WheelError, WebError, or OSError if the folder cannot be
    written.
    """
    with _archive(file, filename) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        _demand_sound(members, filename)
        ends = [*(member.header_offset for member in members[1:]), archive.start_dir]
        spans = {
            member.filename: (member.header_offset, end)
            for member, end in zip(members, ends, strict=False)
            if _is_wanted(member)
        }
        small = isinstance(file, RangedFile) and file.size <= _SMALL_WHEEL
        runs = [(0, archive.start_dir)] if small else list(_runs(list(spans.values())))
        wanted = iter([member for member in members if member.filename in spans])
        member = next(wanted, None)
        for start, end in runs:
            if isinstance(file, RangedFile):
                file.fetch(start, end)
            while member is not None and member.header_offset < end:
                _write(folder, member.filename, _content(archive, member, filename))
                member = next(wanted, None)
        for left in members:
            if left.filename.endswith(_COMPILED) and left.filename not in spans:
                _write(folder, left.filename, b"")


def _archive(file: Path | RangedFile, filename: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _NO_ARCHIVE as error:
        raise _damaged(filename, error) from None


def _demand_sound(members: list[zipfile.ZipInfo], filename: str) -> None:
    """Reject an archive that would write elsewhere or fill the disk."""
    for member in members:
        name = member.filename
        escapes = name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/")
        if escapes or stat.S_ISLNK(member.external_attr >> 16):
            raise WheelError(
                f"{filename} holds a file that would be written elsewhere: {harmless(name[:80])}"
            )
    size = sum(member.file_size for member in members if _is_wanted(member))
    if size > _MOST or len(members) > _MOST_MEMBERS:
        raise WheelError(
            f"{filename} would unpack {counted(len(members), 'file')} with {size} bytes of sources, "
            "which no wheel of vLLM has"
        )


def _is_wanted(member: zipfile.ZipInfo) -> bool:
    name = member.filename
    if name.endswith(_COMPILED):
        return max(member.compress_size, member.file_size // 8) <= _SMALL_MODULE
    return not member.is_dir() and (name.endswith(_SOURCES) or ".dist-info/" in name)


def _runs(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge neighbouring ranges."""
    start, end = spans[0] if spans else (0, 0)
    for following, its_end in spans[1:]:
        if following - end > _GAP:
            yield start, end
            start = following
        end = its_end
    if end:
        yield start, end


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, filename: str) -> bytes:
    try:
        return archive.read(member)
    except (*_NO_ARCHIVE, OSError) as error:
        raise _damaged(f"{filename}: {member.filename}", error) from None


def _damaged(what: str, error: BaseException) -> WheelError:
    reason = str(error) or type(error).__name__
    return WheelError(harmless(f"{what} is damaged: {reason[:120]}"))


def _write(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
