"""A cache of ELF data between runs: an entry is valid until one of its files is written."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from verl_doctor.toolkit.index.records import look
from verl_doctor.toolkit.sources.elf.elf import Header, RequiredVersion, read_header
from verl_doctor.toolkit.system import cache

T = TypeVar("T")

_LARGEST = 64 * 1024 * 1024  # bytes
_MOST = 20_000  # entries
# Increase this number when files are read or judged differently.
_FORMAT = 1


@dataclass
class ElfMemory:
    """Headers of files, and other results about a set of files."""

    folder: Path
    _known: dict[str, Any] = field(default_factory=dict)
    _new: dict[str, Any] = field(default_factory=dict)
    _headers: dict[str, Header] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        loaded = cache.read(self._file, _LARGEST)
        if isinstance(loaded, dict) and loaded.pop("format", None) == _FORMAT:
            self._known = loaded

    @property
    def _file(self) -> Path:
        return self.folder / "elf.json"

    def header(self, path: str) -> Header:
        """Return the contents of the file's dynamic section."""
        if path not in self._headers:
            key = f"header {self._key(path)}"
            header = _restored(self._get(key))
            if header is None:
                header = read_header(path)
                self._new[key] = [
                    list(value) if isinstance(value, tuple) else value for value in vars(header).values()
                ]
            self._headers[path] = header
        return self._headers[path]

    def recall(self, about: str, paths: Iterable[str], restore: Callable[[Any], T]) -> T | None:
        """Return the stored result about these files, in this order, if they are unchanged; otherwise None.

        `restore` rebuilds it from JSON, which may be damaged: if it raises, nothing is known.
        """
        known = self._get(self._digest(about, paths))
        if known is not None:
            with contextlib.suppress(TypeError, ValueError, LookupError, AttributeError):
                return restore(known)
        return None

    def keep(self, about: str, paths: Iterable[str], answer: Any) -> None:
        """Store a result about these files; `answer` must be representable in JSON."""
        self._new[self._digest(about, paths)] = answer

    def save(self) -> None:
        """Save new entries for the next run."""
        if self._new:
            kept = self._new if len(self._known) + len(self._new) > _MOST else {**self._known, **self._new}
            cache.write(self._file, {"format": _FORMAT, **kept})

    def _get(self, key: str) -> Any:
        return self._new.get(key, self._known.get(key))

    def _key(self, path: str) -> str:
        """Return the file itself and its state, see `Seen.key`; a missing file is a state too."""
        if path not in self._keys:
            seen = look(path)
            self._keys[path] = seen.key if seen else f"none {path}"
        return self._keys[path]

    def _digest(self, about: str, paths: Iterable[str]) -> str:
        text = "\n".join((about, *map(self._key, paths)))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _restored(value: Any) -> Header | None:
    """A header restored from its JSON form, which may be damaged."""
    with contextlib.suppress(TypeError, ValueError):
        bits, machine, interpreter, soname, needed, rpath, runpath, requires, defines, problem = value
        return Header(
            bits=bits,
            machine=machine,
            interpreter=interpreter,
            soname=soname,
            needed=tuple(needed),
            rpath=rpath,
            runpath=runpath,
            requires=tuple(RequiredVersion(*version) for version in requires),
            defines=tuple(defines),
            problem=problem,
        )
    return None
