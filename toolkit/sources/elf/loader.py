"""Finds the file that the dynamic loader would load for a library's name: the search order of ld.so(8).

Everything is read below the machine's root, so that recorded machines can be examined. Not modelled: programs
with raised privileges, `dlmopen`, and the legacy hardware subfolders that glibc 2.37 dropped.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.elf import loader_cache
from verl_doctor.toolkit.sources.elf.elf import Header, read_header
from verl_doctor.toolkit.sources.elf.loader_cache import Cached

How = Literal[
    "path",
    "LD_PRELOAD",
    "/etc/ld.so.preload",
    "RPATH",
    "LD_LIBRARY_PATH",
    "RUNPATH",
    "ld.so.cache",
    "default folder",
]
Trouble = Literal["", "dangling link", "not readable", "for another processor", "no ELF file", "damaged"]

ENDS_SEARCH = frozenset({"", "no ELF file", "damaged"})
"""The troubles that end the search; "" means none."""

# The flags in /proc/cpuinfo that make a processor one of these levels (the x86-64 psABI); each includes those
# before it.
_LEVELS = {
    "x86-64-v2": "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)\b)")
_FOLDERS_IN_LOADER = re.compile(rb"(?<=\0)(?:/[\w.+/-]*lib[\w.+/-]*/\0){1,8}")
_LARGEST_LOADER = 8 * 1024 * 1024  # bytes
_DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


class NoSuchLoader(Exception):  # noqa: N818 - an answer, no error of ours
    """How this program finds its libraries is unknown; the message is the reason."""


@dataclass(frozen=True)
class Candidate:
    """A file with the right name in the loader's search path.

    `how` is what adds the folder, `entry` the folder as written.

    The loader does not load a file with a `trouble`: `ends_search` means that it stops there with an error.
    """

    path: str
    how: How
    entry: str = ""
    trouble: Trouble = ""

    @property
    def ends_search(self) -> bool:
        """Whether the search ends here, with or without an error."""
        return self.trouble in ENDS_SEARCH


@dataclass(frozen=True)
class Requirer:
    """A file that requires libraries, or that loaded such a file, with the folders that it names."""

    path: str
    rpath: str = ""
    runpath: str = ""


class Loader:
    """The dynamic loader of one program on one machine, with one environment.

    Raises NoSuchLoader when the program cannot be read, or has no loader (a static program, a script), or not
    glibc's (musl).
    """

    def __init__(self, machine: Machine, program: str, environ: Mapping[str, str] | None = None) -> None:
        self._machine = machine
        self._environ = machine.environ if environ is None else environ
        path = machine.real(program)
        self.header = header = self._header(path)
        if header.problem or header.bits != 64:
            raise NoSuchLoader(f"{program}: {header.problem or 'it is not a 64-bit program'}")
        if not header.interpreter:
            raise NoSuchLoader(f"{program} is linked statically")
        if "ld-musl" in header.interpreter:
            raise NoSuchLoader(f"{program} is for musl, whose loader searches differently")
        self.program = Requirer(path, header.rpath, header.runpath)

    def find(self, soname: str, requirers: Iterable[Requirer] = ()) -> Candidate | None:
        """Return the file that would be loaded; None when the search ends with nothing, or with an error."""
        first = next((candidate for candidate in self.all(soname, requirers) if candidate.ends_search), None)
        return first if first and not first.trouble else None

    def all(self, soname: str, requirers: Iterable[Requirer] = ()) -> Iterator[Candidate]:
        """Yield every candidate in the order of the search: the first without trouble is loaded.

        `requirers` are the requesting file and those that loaded it, from the inside out; the program is
        added. Without them the program itself is the requester.
        """
        chain = [requirer for requirer in requirers if requirer.path != self.program.path]
        if "/" in soname:
            yield from self._file(self._expanded(soname, [*chain, self.program][0]), "path", soname)
            return
        yield from self._preloaded(soname)
        for folder, how, entry in self._folders([*chain, self.program]):
            for subfolder in (*self._glibc_hwcaps, ""):
                yield from self._file(os.path.join(folder, subfolder, soname), how, entry)  # noqa: PTH118
        yield from self._from_cache(soname)
        for folder in self.default_folders:
            for subfolder in (*self._glibc_hwcaps, ""):
                yield from self._file(os.path.join(folder, subfolder, soname), "default folder", folder)  # noqa: PTH118

    def cached(self, soname: str) -> tuple[Cached, ...]:
        """Return what /etc/ld.so.cache has by this name for such programs: `ldconfig -p` in its order."""
        return tuple(
            entry for entry in self.cache if entry.soname == soname and entry.is_for(self.header.machine)
        )

    @functools.cached_property
    def cache(self) -> tuple[Cached, ...]:
        """The entries of /etc/ld.so.cache, empty when it does not exist."""
        try:
            return loader_cache.parse(self._machine.at(loader_cache.PATH).read_bytes())
        except OSError:
            return ()

    @functools.cached_property
    def default_folders(self) -> tuple[str, ...]:
        """The folders that this loader was built with, read from it; the usual ones when it is unreadable."""
        try:
            with self._machine.at(self._machine.real(self.header.interpreter)).open("rb") as file:
                found = _FOLDERS_IN_LOADER.findall(file.read(_LARGEST_LOADER))
        except OSError:
            found = []
        if found:
            longest: bytes = max(found, key=lambda run: (run.count(b"\0"), len(run)))
            return tuple(os.fsdecode(folder).rstrip("/") for folder in longest.split(b"\0") if folder)
        triplet = f"{self.header.machine}-linux-gnu"
        multiarch = [f"{above}/{triplet}" for above in ("/lib", "/usr/lib")]
        existing = [folder for folder in multiarch if os.path.isdir(self._machine.at(folder))]
        return (*existing, *_DEFAULT)

    def _folders(self, chain: list[Requirer]) -> Iterator[tuple[str, How, str]]:
        """Yield what is searched before the cache: RPATH counts when the requesting file has no RUNPATH."""
        if not chain[0].runpath:
            for requirer in chain:
                for entry in () if requirer.runpath else _split(requirer.rpath, ":"):
                    yield self._expanded(entry, requirer), "RPATH", entry
        # An empty entry means the current folder.
        for entry in _split(self._environ.get("LD_LIBRARY_PATH", ""), "[:;]"):
            yield self._expanded(entry, self.program), "LD_LIBRARY_PATH", entry
        for entry in _split(chain[0].runpath, ":"):
            yield self._expanded(entry, chain[0]), "RUNPATH", entry

    def _from_cache(self, soname: str) -> Iterator[Candidate]:
        """Yield the entry that the loader takes: for this machine's best processor level, else the first."""
        entries = self.cached(soname)
        levels = [folder.rpartition("/")[2] for folder in self._glibc_hwcaps]
        fitting = [entry for entry in entries if not entry.hwcaps or entry.hwcaps in levels]
        if fitting:
            best = min(fitting, key=lambda entry: levels.index(entry.hwcaps) if entry.hwcaps else len(levels))
            yield from self._file(best.path, "ld.so.cache", str(PurePosixPath(best.path).parent))

    def _preloaded(self, soname: str) -> Iterator[Candidate]:
        """Yield files that are preloaded and already have the name."""
        lists: tuple[tuple[How, str], ...] = (
            ("LD_PRELOAD", self._environ.get("LD_PRELOAD", "")),
            ("/etc/ld.so.preload", self._machine.read("/etc/ld.so.preload") or ""),
        )
        for how, text in lists:
            for entry in re.split(r"[:\s]+", text):
                if "/" not in entry:
                    continue
                for candidate in self._file(self._expanded(entry, self.program), how, entry):
                    if not candidate.trouble and self._header(candidate.path).soname == soname:
                        yield candidate

    def _file(self, path: str, how: How, entry: str) -> Iterator[Candidate]:
        """Yield the candidate with what keeps the loader from taking it; nothing if the file is missing."""
        if not path.startswith("/"):
            path = str(self._machine.cwd / path)
        if self._machine.root == Path("/") and not os.path.lexists(path):
            return  # the usual case: following links that do not exist would cost twenty times as much
        if ".." in path:  # after a link it leads elsewhere than the text suggests
            folder, name = os.path.split(path)
            path = f"{self._machine.real(folder)}/{name}"
        candidate = Candidate(path, how, entry)
        file = self._machine.at(self._machine.real(path))
        if not os.path.exists(file):
            if self._is_link(path):
                yield replace(candidate, trouble="dangling link")
        elif not os.path.isdir(file):
            yield replace(candidate, trouble=self._trouble(path))

    def _trouble(self, path: str) -> Trouble:
        header = self._header(path)
        if not header.bits:
            return (
                "no ELF file"
                if os.access(self._machine.at(self._machine.real(path)), os.R_OK)
                else "not readable"
            )
        if (header.bits, header.machine) != (self.header.bits, self.header.machine):
            return "for another processor"
        return "damaged" if header.problem else ""

    def _header(self, path: str) -> Header:
        return read_header(str(self._machine.at(self._machine.real(path))))

    def _is_link(self, path: str) -> bool:
        folder, name = os.path.split(path)
        return self._machine.at(f"{self._machine.real(folder)}/{name}").is_symlink()

    def _expanded(self, entry: str, requirer: Requirer) -> str:
        """Return a path with `$ORIGIN`, `$LIB` and `$PLATFORM` replaced."""
        if "$" not in entry:
            return entry
        multiarch = next((folder for folder in self.default_folders if folder.endswith("-linux-gnu")), "")
        meaning = {
            "ORIGIN": os.path.dirname(requirer.path),  # noqa: PTH120
            "LIB": f"lib/{os.path.basename(multiarch)}" if multiarch else "lib64",  # noqa: PTH119
            "PLATFORM": self.header.machine,
        }
        return _TOKEN.sub(lambda match: meaning[match[1] or match[2]], entry)

    @functools.cached_property
    def _glibc_hwcaps(self) -> tuple[str, ...]:
        """The subfolders searched first in each folder, those for the newest processors before others."""
        if self.header.machine != "x86_64":
            return ()
        line = re.search(r"^flags\s*:(.*)$", self._machine.read("/proc/cpuinfo") or "", re.MULTILINE)
        flags = set(line[1].split()) if line else set()
        found: list[str] = []
        for level, needed in _LEVELS.items():
            if not flags.issuperset(needed.split()):
                break
            found.insert(0, f"glibc-hwcaps/{level}")
        return tuple(found)


def _split(folders: str, separator: str) -> list[str]:
    """Return the entries of a search path.

    Empty text has no entries, and an empty entry among others is the current folder.
    """
    return re.split(separator, folders) if folders else []
