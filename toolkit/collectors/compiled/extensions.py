"""The compiled parts of the installed packages: what each lacks to be loaded into a process with this torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MissingLibrary:
    """A library that is found nowhere, other than the driver's. `asked_by` is the file that needs it, `lies_in` where nobody looks for it."""

    name: str
    asked_by: str
    lies_in: str = ""


@dataclass(frozen=True)
class MissingSymbol:
    """A symbol that no library exports, as it is written in the file and in words.

    `similar` are symbols, in words, of the installed torch that bear the same name and take something else. `expected_of` is
    the library that would be loaded and that, going by its name, should have it: an older or newer one than was meant.
    """

    name: str
    words: str
    similar: tuple[str, ...] = ()
    expected_of: str = ""


@dataclass(frozen=True)
class MissingVersion:
    """A version of its symbols, such as GLIBCXX_3.4.30, that the library that would be loaded does not define.

    `newest` is the highest one of the same name that it does, `defined_by` another file where the loader looks that has it.
    """

    version: str
    library: str
    path: str
    newest: str
    defined_by: str = ""


@dataclass(frozen=True)
class Extension:
    """A compiled file of a package, and what keeps it from being loaded.

    `machine` is the processor that it is for. `problem` names a file, it or one that it needs, and why no process here loads it.
    `missing_symbols` are the first of `symbols_missing`. `cuda`: it needs
    a library of CUDA or of torch's part for CUDA, and `cuda_runtimes` are the runtime libraries that it names itself. `built_for_torch` is the version that its package says it was built for,
    "" when it says none, and `before_torch` says that it was installed before the torch that is there now. `instead` is
    a file of the same package that can be loaded and is the same but for the CUDA, the processor or the FFmpeg that it is for.
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
        """Whether nothing speaks against it."""
        return not (self.problem or self.missing_libraries or self.symbols_missing or self.missing_versions)


@dataclass(frozen=True)
class Extensions:
    """The files that need torch or CUDA, and whichever others lack something. `looked_at` counts all compiled files."""

    extensions: tuple[Extension, ...]
    looked_at: int
