"""CUDA110: a compiled package lacks symbols: it was built for another torch, another ABI or another CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from verl_doctor.checks.compiled._missing_symbols import (
    in_torch,
    is_of_python,
    is_of_torch,
    is_other_abi,
    library_name,
    needs_new_abi,
    older_library,
    short,
)
from verl_doctor.checks.shared.extensions import (
    TORCH,
    broken_packages,
    file_name,
    fits,
    lacking,
    rank,
    release,
    severity,
    what_fits,
)
from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.compiled.extensions import Extension, Extensions, MissingSymbol
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 3
_STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
_OLD_ABI = MissingSymbol(
    name="_ZN3c105ErrorC2ENS_14SourceLocationESs",
    words="c10::Error::Error(c10::SourceLocation, std::string)",
    similar=(f"c10::Error::Error(c10::SourceLocation, {_STRING})",),
)
_OLDER = MissingSymbol(
    name="_ZN3c104cuda9SetDeviceEa",
    words="c10::cuda::SetDevice(signed char)",
    similar=("c10::cuda::SetDevice(signed char, bool)",),
)
_GONE = MissingSymbol(
    name="_ZNK3c106SymInt22maybe_as_int_slow_pathEv", words="c10::SymInt::maybe_as_int_slow_path() const"
)
_NCCL = MissingSymbol(
    name="ncclCommWindowRegister",
    words="ncclCommWindowRegister",
    expected_of="/env/nvidia/nccl/lib/libnccl.so.2",
)
_BUILDS = Extensions(
    extensions=tuple(
        replace(lacking(_GONE).extensions[0], path=f"/env/ep_torch{name}.so", built_for_torch=version)
        for name, version in (("210", "2.10"), ("29", "2.9"))
    ),
    looked_at=2,
)


def _examples() -> list[Example]:
    return [
        Example("every symbol exists", (PYTHON, TORCH, lacking())),
        Example(
            "another file of the package is loaded instead",
            (PYTHON, TORCH, lacking(_GONE, instead="/env/b.so")),
        ),
        Example(
            "the other ABI of the C++ library",
            (PYTHON, TORCH, lacking(_OLD_ABI)),
            "the old ABI of the C++ library",
        ),
        Example(
            "a function has other parameters now",
            (PYTHON, TORCH, lacking(_OLDER)),
            "built for torch 2.6, but torch 2.8.0+cu128 is installed",
        ),
        Example(
            "a function was removed",
            (PYTHON, TORCH, lacking(_GONE, built_for_torch="")),
            "built for a torch other than the installed 2.8.0+cu128",
        ),
        Example(
            "the same version, installed later",
            (PYTHON, TORCH, lacking(_GONE, built_for_torch="2.8", before_torch=True)),
            "torch was installed after it",
        ),
        Example(
            "a CUDA library of another version",
            (PYTHON, TORCH, lacking(_NCCL)),
            "the loaded libnccl.so.2 does not have ncclCommWindowRegister",
        ),
        Example(
            "a symbol that no library has",
            (PYTHON, TORCH, lacking(MissingSymbol(name="_ZN4nixl4FileC1Ev", words="nixl::File::File()"))),
            "no library here exports nixl::File::File()",
        ),
        Example(
            "separate builds for other releases of torch",
            (PYTHON, TORCH, _BUILDS),
            "built for torch 2.9, 2.10, but torch 2.8.0+cu128 is installed",
        ),
        Example(
            "another Python",
            (PYTHON, TORCH, lacking(MissingSymbol(name="_PyThing", words="_PyThing"))),
            "another Python",
        ),
    ]


@check("CUDA110", phase="import", requires={"PY100"}, examples=_examples)
def extension_of_another_torch(
    interpreter: Interpreter,
    torch: TorchBuild | Unknown,
    extensions: Extensions,
    packages: Packages | Unknown,
) -> Iterator[Finding]:
    """A compiled package lacks symbols: it was built for another torch, another ABI or another CUDA.

    ## Why it matters

    Python loads an extension module with all of its symbols or not at all. One that was compiled for another
    torch needs functions that this one does not have, or that take other arguments: `undefined symbol:
    _ZN3c10...`. vLLM then reports `No module named 'vllm._C'`, or fails at the first missing operator. This
    happens when a later installation replaces torch, or when `pip install flash-attn` picks a wheel for
    another torch.

    ## How to fix

    Install the torch that the package was built for, or the build of the package that fits this torch; the
    remedy names one. Wheels of flash-attn carry torch, CUDA, ABI and Python in their names. `verl-doctor
    matrix` shows which releases of verl, vLLM and torch go together.
    """
    causes: dict[str, list[_Broken]] = {}
    for package, version, group in broken_packages(extensions):
        files = [extension for extension in group if extension.symbols_missing]
        if files:
            files.sort(key=lambda extension: -extension.symbols_missing)
            causes.setdefault(_reason(files, torch), []).append(_Broken(package, version, files))
    for reason, broken in causes.items():
        # What the job needs comes first, followed by others with the same cause.
        broken.sort(key=lambda broken_package: rank(broken_package.package, packages))
        first, worst = broken[0], broken[0].files[0]
        names = listed(
            (f"{broken_package.package} {broken_package.version}" for broken_package in broken), _SHOWN
        )
        yield Finding(
            f"{names} cannot be loaded: {reason}",
            Evidence(
                found=f"{file_name(worst.path)} lacks {_counted(worst.symbols_missing)}; "
                + "; ".join(map(in_torch, worst.missing_symbols[:_SHOWN])),
                wanted="every undefined symbol is exported by what it needs, by torch or by its own package",
                read_from=worst.path,
            ),
            location=Location(worst.path),
            remedy=_remedy(first.package, first.version, worst, torch, interpreter),
            severity=severity(first.package, packages),
            also=tuple(
                Location(file.path)
                for broken_package in broken
                for file in broken_package.files
                if file is not worst
            ),
            subject=Subject(
                "package",
                ",".join(broken_package.package for broken_package in broken),
                ",".join(broken_package.version for broken_package in broken),
            ),
        )


class _Broken(NamedTuple):
    """A package, and its files that lack symbols, the file that lacks most first."""

    package: str
    version: str
    files: list[Extension]


def _reason(files: list[Extension], torch: TorchBuild | Unknown) -> str:
    """Why the first, worst of a package's files cannot be loaded.

    The others may be for other releases of torch.
    """
    extension = files[0]
    symbols = extension.missing_symbols
    if any(map(is_of_python, symbols)):
        return "built for another Python"
    if isinstance(torch, Unknown):
        return f"{_counted(len(symbols))} are missing"
    if (library := older_library(symbols)) is not None:
        return f"the loaded {library_name(library)} does not have {library.name}"
    abi = next((symbol for symbol in symbols if is_other_abi(symbol)), None)
    if abi is not None:
        its, own = ("new", "old") if needs_new_abi(abi) else ("old", "new")
        which = (
            f"the {its} ABI of the C++ library (std::string) is used, but torch {torch.version} has the "
            f"{own} one"
        )
        return f"{which}; built for torch {wanted}" if (wanted := extension.built_for_torch) else which
    if not any(map(is_of_torch, symbols)):
        return f"no library here exports {short(symbols[0].words)}"
    return _built_for(files, torch)


def _built_for(files: list[Extension], torch: TorchBuild) -> str:
    wanted = sorted({file.built_for_torch for file in files if file.built_for_torch}, key=release)
    if wanted and not any(fits(release, torch.version) for release in wanted):
        return f"built for torch {listed(wanted, _SHOWN)}, but torch {torch.version} is installed"
    if files[0].before_torch:
        return f"built for a torch other than the installed {torch.version}; torch was installed after it"
    return f"built for a torch other than the installed {torch.version}"


def _remedy(
    package: str, version: str, extension: Extension, torch: TorchBuild | Unknown, interpreter: Interpreter
) -> str:
    symbols = extension.missing_symbols
    if any(map(is_of_python, symbols)):
        return (
            f"install {package} with this Python ({interpreter.version}): pip install --force-reinstall "
            f"--no-deps {package}=={version}"
        )
    if (library := older_library(symbols)) is not None:
        if "/nvidia/" in library.expected_of:
            return (
                f"install the release of {package} that goes with this torch, or a newer wheel of "
                f"{library.expected_of} that torch allows (`pip check`)"
            )
        return (
            "change LD_LIBRARY_PATH so that the loader finds torch's own library before the one of "
            f"{library.expected_of}"
        )
    return what_fits(package, version, extension, torch, interpreter)


def _counted(number: int) -> str:
    return "one symbol" if number == 1 else f"{number} symbols"
