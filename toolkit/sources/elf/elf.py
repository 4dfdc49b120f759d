"""Compiled libraries from the dynamic loader's point of view.

What an ELF file needs, imports and exports, without loading it.

Everything is read through the program headers and the dynamic section, which the loader uses; section headers
may be stripped. Formats: elf(5), and the GNU extensions in glibc's elf/elf.h.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from verl_doctor.toolkit.sources.elf.bytes import DAMAGE, MOST_ENTRIES, SYMBOL, DamagedError, Image
from verl_doctor.toolkit.sources.elf.hash import SYMBOLS, GnuHash, SysvHash, hash_table

_NEEDED, _SONAME, _RPATH, _RUNPATH = 1, 14, 15, 29
_VERSYM = 0x6FFFFFF0
_VERDEF, _VERDEFNUM, _VERNEED, _VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_WEAK = 2
_VERSION = 0x7FFF  # the highest bit of an entry hides the symbol from references without a version
_FLAG_BASE, _FLAG_WEAK = 1, 2


class RequiredVersion(NamedTuple):
    """A version of its symbols (GLIBC_2.34 of libc.so.6) that a library must define, unless `weak`."""

    library: str
    version: str
    weak: bool


class Undefined(NamedTuple):
    """A symbol that another library must export. `version` and `library` are empty when none is required."""

    name: str
    weak: bool
    version: str
    library: str


@dataclass(frozen=True)
class Header:
    """The contents of a library's dynamic section.

    `bits` is 0 if it is no ELF file; `machine` is named as by `uname -m`. `interpreter` is the loader that a
    program names, "" for a library. `rpath` and `runpath` are as written, including `$ORIGIN`; both name
    where the `needed` libraries are looked for, and the loader ignores the first if the second exists.
    `requires` are versions that the needed libraries must define, `defines` those of its own symbols.
    `problem` is what kept the file from being read completely, as in "it is empty".
    """

    bits: int = 0
    machine: str = ""
    interpreter: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: str = ""
    runpath: str = ""
    requires: tuple[RequiredVersion, ...] = ()
    defines: tuple[str, ...] = ()
    problem: str = ""


def read_header(path: str) -> Header:
    """Return the contents of a file's dynamic section; see `Header.problem` for an unreadable one."""
    with ElfFile(path) as file:
        return file.header


class ElfFile:
    """An open ELF file.

    Nothing raises, whatever it contains: unreadable parts are left out, and `header.problem` is the reason.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        self._image: Image | None = None
        self._table: GnuHash | SysvHash | None = None
        self._versions: dict[int, tuple[str, str]] = {}
        problem = ""
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._image = Image(self._descriptor)
            self._image.read_headers()
        except OSError as error:
            problem = error.strerror or "it cannot be read"
        except DAMAGE as error:
            problem = _reason(error)
        self.header = self._read_header(problem)

    def __enter__(self) -> ElfFile:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def undefined(self) -> tuple[Undefined, ...]:
        """Return the symbols that other libraries must export, in the order of the file."""
        found: list[Undefined] = []
        with contextlib.suppress(*DAMAGE):
            found.extend(self._undefined())
        return tuple(found)

    def exports(self, name: str, version: str = "") -> bool:
        """Return whether this library exports a symbol, looked up in its hash table as the loader does.

        A library whose symbols have no versions satisfies a reference to any version, as for the loader.
        """
        with contextlib.suppress(*DAMAGE):
            encoded = name.encode("utf-8", "surrogateescape")
            return any(
                not version or self._has_version(index, version) for index in self._hashes.find(encoded)
            )
        return False

    def exports_starting(self, prefix: str, most: int = 20) -> tuple[str, ...]:
        """Return exported symbols with this prefix, which may resemble a missing symbol."""
        if self._image is None:
            return ()
        names = _strings_starting(self._image.strings, prefix.encode("utf-8", "surrogateescape"))
        return tuple(itertools.islice((name for name in names if self.exports(name)), most))

    def section(self, name: str) -> tuple[int, int] | None:
        """Return offset and size in bytes of a section; None if it does not exist or has no header."""
        with contextlib.suppress(*DAMAGE):
            return self._sound.section(name)
        return None

    def read(self, offset: int, most: int) -> bytes:
        """Return the bytes of the file from here on, fewer or none where it ends."""
        with contextlib.suppress(*DAMAGE):
            return self._sound.read_some(offset, most)
        return b""

    # ---- methods that may raise

    @property
    def _sound(self) -> Image:
        if self._image is None or self._descriptor < 0:
            raise DamagedError("it is not open")
        return self._image

    @property
    def _hashes(self) -> GnuHash | SysvHash:
        if self._table is None:
            self._table = hash_table(self._sound)
        return self._table

    def _read_header(self, problem: str) -> Header:
        image = self._image
        if image is None:
            return Header(problem=problem)
        names: dict[int, list[str]] = {}
        requires: list[RequiredVersion] = []
        defines: list[str] = []
        try:
            for tag, value in image.entries:
                if tag in {_NEEDED, _SONAME, _RPATH, _RUNPATH}:
                    names.setdefault(tag, []).append(image.string(value))
            requires.extend(self._needed_versions(image))
            defines.extend(self._defined_versions(image))
        except DAMAGE as error:
            problem = problem or _reason(error)
        soname, rpath, runpath = ("".join(names.get(tag, [""])[-1:]) for tag in (_SONAME, _RPATH, _RUNPATH))
        return Header(
            bits=image.bits,
            machine=image.machine,
            interpreter=image.interpreter,
            soname=soname,
            needed=tuple(names.get(_NEEDED, ())),
            rpath=rpath,
            runpath=runpath,
            requires=tuple(requires),
            defines=tuple(defines),
            problem=problem,
        )

    def _undefined(self) -> Iterator[Undefined]:
        image = self._sound
        count = self._hashes.undefined_before
        if count is None:  # it exports nothing, and only the section header has the number of symbols
            section = image.section(".dynsym")
            count = section[1] // SYMBOL.size if section else 0
        symbols = image.table(SYMBOLS, SYMBOL.size * count)
        versions = memoryview(image.table(_VERSYM, 2 * count)).cast("H")
        for index, (name, info, _, section, _, _) in enumerate(SYMBOL.iter_unpack(symbols)):
            if section == 0 and name and info >> 4:  # a binding of 0 is local
                number = versions[index] & _VERSION if versions else 0
                library, version = self._versions.get(number, ("", ""))
                yield Undefined(image.string(name), info >> 4 == _WEAK, version, library)

    def _has_version(self, index: int, version: str) -> bool:
        if _VERSYM not in self._sound.dynamic or not self.header.defines:
            return True
        where = self._sound.offset(self._sound.dynamic[_VERSYM]) + 2 * index
        (number,) = struct.unpack("=H", self._sound.read(where, 2))
        return self._versions.get(number & _VERSION, ("", ""))[1] == version

    def _needed_versions(self, image: Image) -> Iterator[RequiredVersion]:
        """Walk Elf64_Verneed, a list of libraries, each with its list of Elf64_Vernaux, the versions."""
        where = image.offset(image.dynamic[_VERNEED]) if _VERNEED in image.dynamic else 0
        left = MOST_ENTRIES
        for _ in range(image.dynamic.get(_VERNEEDNUM, 0)):
            _, count, file, first, following = struct.unpack("=HHIII", image.read(where, 16))
            library, at = image.string(file), where + first
            for _ in range(count):
                _, flags, index, name, step = struct.unpack("=IHHII", image.read(at, 16))
                version = image.string(name)
                self._versions[index & _VERSION] = (library, version)
                yield RequiredVersion(library, version, bool(flags & _FLAG_WEAK))
                at += step
                left -= 1
                if left < 0:
                    raise DamagedError("its list of versions has no end")
            left -= 1
            if left < 0:
                raise DamagedError("its list of versions has no end")
            where += following

    def _defined_versions(self, image: Image) -> Iterator[str]:
        """Walk Elf64_Verdef. The entry with the flag is the library's own name, not a version."""
        where = image.offset(image.dynamic[_VERDEF]) if _VERDEF in image.dynamic else 0
        for _ in range(min(image.dynamic.get(_VERDEFNUM, 0), MOST_ENTRIES)):
            _, flags, index, _, _, first, following = struct.unpack("=HHHHIII", image.read(where, 20))
            (name,) = struct.unpack("=I", image.read(where + first, 4))
            if not flags & _FLAG_BASE:
                version = image.string(name)
                self._versions[index & _VERSION] = ("", version)
                yield version
            where += following


def _strings_starting(strings: bytes, prefix: bytes) -> Iterator[str]:
    at = strings.find(b"\0" + prefix)
    while at >= 0:
        end = strings.find(b"\0", at + 1)
        yield strings[at + 1 : end if end >= 0 else None].decode("utf-8", "surrogateescape")
        at = strings.find(b"\0" + prefix, at + 1)


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, DamagedError) else "it is damaged"
