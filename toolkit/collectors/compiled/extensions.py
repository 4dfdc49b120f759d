"""The installed packages' compiled files, and what prevents loading each in a process with this torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MissingLibrary:
    """A library that is not found, other than the driver's.

    `asked_by` is the file that needs it, `lies_in` a folder that has it but is not searched.
    """

    name: str
    asked_by: str
    lies_in: str = ""


@dataclass(frozen=True)
class MissingSymbol:
    """A symbol that no library exports, as it is written in the file and demangled.

    `similar` are demangled symbols of the installed torch with the same name and other parameters.
    `expected_of` is the library that would be loaded and that should have it, judging by its name: it is
    older or newer than intended.
    """

    name: str
    words: str
    similar: tuple[str, ...] = ()
    expected_of: str = ""


@dataclass(frozen=True)
class MissingVersion:
    """A symbol version, such as GLIBCXX_3.4.30, that the library that would be loaded does not define.

    `newest` is the highest version of the same name that it defines, `defined_by` another file on the
    loader's path that has it.
    """

    version: str
    library: str
    path: str
    newest: str
    defined_by: str = ""


@dataclass(frozen=True)
class Extension:
    """A compiled file of a package, and what prevents it from being loaded.

    `machine` is the processor that it is for. `problem` names this file or a dependency, and why no process
    here loads it. `missing_symbols` are the first of `symbols_missing`. `cuda`: it needs a library of CUDA or
    of torch's CUDA part, and `cuda_runtimes` are the runtime libraries that it names itself.
    `built_for_torch` is the version that its package was built for, "" if not stated, and `before_torch`: it
    was installed before the present torch. `instead` is a loadable file of the same package that differs only
    in the CUDA, the processor or the FFmpeg that it is for.
    """

    path: str
    package: str
    version: str
    machine: str = ""
    problem: str = ""
    uses_torch: bool = False
    cuda: bool = False
    cuda_runtimes: tuple[str, ...] = ()
    missing_libraries: tuple[MissingLibrary, ...] = ()
    missing_symbols: tuple[MissingSymbol, ...] = ()
    symbols_missing: int = 0
    missing_versions: tuple[MissingVersion, ...] = ()
    built_for_torch: str = ""
    before_torch: bool = False
    instead: str = ""

    @property
    def loads(self) -> bool:
        """Whether nothing prevents loading it."""
        return not (self.problem or self.missing_libraries or self.symbols_missing or self.missing_versions)


@dataclass(frozen=True)
class Extensions:
    """The files that need torch or CUDA, and any others that lack something.

    `looked_at` counts all compiled files.
    """

    extensions: tuple[Extension, ...]
    looked_at: int
