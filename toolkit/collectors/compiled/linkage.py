"""Symbol resolution among libraries of a Python process with torch: the loader's work, without loading.

A library finds a symbol in the global scope (the interpreter, and what torch loads with RTLD_GLOBAL), then in
itself and its dependencies, breadth first. A name that is already loaded is not searched again (ld.so(8),
dlopen(3)).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.compiled.elf_memory import ElfMemory
from verl_doctor.toolkit.sources.elf.elf import ElfFile, Undefined
from verl_doctor.toolkit.sources.elf.loader import Loader, Requirer


@dataclass(frozen=True)
class Closure:
    """A library and its dependencies, breadth first, itself first.

    `missing` are names that are not found, and what needs them.
    """

    paths: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()


@dataclass
class Process:
    """The libraries of a process: those already loaded, by the names under which they are requested.

    `everybody` is the global scope, visible to all libraries. `fallback` are folders that torch itself
    searches for what the loader does not find.
    """

    loader: Loader
    memory: ElfMemory
    loaded: dict[str, str] = field(default_factory=dict)
    everybody: list[str] = field(default_factory=list)
    fallback: tuple[str, ...] = ()
    _found: dict[tuple[str, tuple[Requirer, ...]], str | None] = field(default_factory=dict)
    _open: dict[str, ElfFile] = field(default_factory=dict)

    def load(self, path: str) -> Closure:
        """Load a library and its dependencies permanently: later libraries find them by name."""
        closure = self.closure(path, self.loaded)
        for library in closure.paths:
            self._enter(self.loaded, library)
        return closure

    def closure(self, path: str, loaded: dict[str, str] | None = None) -> Closure:
        """Return the libraries loaded with a library by a process that has loaded the same as this one."""
        known = dict(self.loaded if loaded is None else loaded)
        self._enter(known, path)
        paths, missing = [path], []
        queue: list[tuple[str, tuple[Requirer, ...]]] = [(path, ())]
        for current, above in queue:
            header = self.memory.header(current)
            # Only the folder of the requesting file matters, so files in one folder share the results.
            folder = os.path.dirname(current)  # noqa: PTH120 - thousands of names
            requirers = (Requirer(f"{folder}/", header.rpath, header.runpath), *above)
            for name in header.needed:
                library = known.get(name)
                if library is None:
                    library = self._find(name, requirers)
                    if library is None:
                        missing.append((name, current))
                        continue
                    known[name] = library
                    self._enter(known, library)
                if library not in paths:
                    paths.append(library)
                    queue.append((library, requirers))
        return Closure(tuple(paths), tuple(missing))

    def unresolved(self, path: str, closure: Closure, more: Iterable[str] = ()) -> tuple[Undefined, ...]:
        """Return a library's required symbols that neither its closure nor the global scope exports.

        `more` are further libraries that may already be loaded: what they export is not missing.
        """
        scope = list(dict.fromkeys((*self.everybody, *closure.paths, *more)))
        found = []
        with ElfFile(path) as file:
            wanted = [symbol for symbol in file.undefined() if not symbol.weak]
        # The library that had the previous symbol usually has the next one too.
        for symbol in wanted:
            for index, library in enumerate(scope):
                if self._file(library).exports(symbol.name, symbol.version):
                    if index:
                        scope.insert(0, scope.pop(index))
                    break
            else:
                found.append(symbol)
        return tuple(found)

    def exports_starting(
        self, prefix: str, libraries: Iterable[str], most: int = 20
    ) -> Iterator[tuple[str, str]]:
        """Symbols with this prefix, each with the library that exports it."""
        for library in libraries:
            for name in self._file(library).exports_starting(prefix, most):
                yield name, library

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, path: str) -> ElfFile:
        if path not in self._open:
            self._open[path] = ElfFile(path)
        return self._open[path]

    def _enter(self, loaded: dict[str, str], path: str) -> None:
        loaded.setdefault(os.path.basename(path), path)  # noqa: PTH119 - thousands of names
        if soname := self.memory.header(path).soname:
            loaded.setdefault(soname, path)

    def _find(self, name: str, requirers: tuple[Requirer, ...]) -> str | None:
        searching = tuple(
            dict.fromkeys(requirer for requirer in requirers if requirer.rpath or requirer.runpath)
        )
        # An RPATH counts only if the requesting file has no RUNPATH.
        key = (name, searching[:1] if requirers[0].runpath else searching)
        if key not in self._found:
            candidate = self.loader.find(name, requirers)
            self._found[key] = candidate.path if candidate else self._fall_back(name)
        return self._found[key]

    def _fall_back(self, name: str) -> str | None:
        candidates = (f"{folder}/{name}" for folder in self.fallback)
        return next((path for path in candidates if os.path.exists(path)), None)
