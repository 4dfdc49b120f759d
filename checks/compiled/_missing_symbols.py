"""Why symbols are missing, as text: another C++ library ABI, torch, CUDA library or Python."""

from __future__ import annotations

import re

from verl_doctor.checks.shared.extensions import file_name
from verl_doctor.toolkit.collectors.compiled.extensions import MissingSymbol

_STRING = re.compile(r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>")
_TORCH = re.compile(r"\b(?:c10|at|torch|caffe2)::|^(?:aoti_)?torch_")
_LONGEST = 160  # characters of a function that a message shows


def is_other_abi(symbol: MissingSymbol) -> bool:
    """Whether torch has the same function except for its std::string, with or without `std::__cxx11`."""
    plain = _without_abi(symbol.words)
    return any(other != symbol.words and _without_abi(other) == plain for other in symbol.similar)


def needs_new_abi(symbol: MissingSymbol) -> bool:
    """Whether the missing function is of the new ABI."""
    return "cxx11" in symbol.words


def is_of_python(symbol: MissingSymbol) -> bool:
    """Whether the symbol is a function of Python's C API."""
    return symbol.name.lstrip("_").startswith("Py")


def is_of_torch(symbol: MissingSymbol) -> bool:
    """Whether the symbol is one of torch's functions, in C++ or in the C interface stable across releases."""
    return _TORCH.search(symbol.words) is not None


def in_torch(symbol: MissingSymbol) -> str:
    """What this torch has instead."""
    words = short(symbol.words)
    if is_other_abi(symbol):
        return (
            f"{words}: torch has it with {'std::string' if needs_new_abi(symbol) else 'std::__cxx11::string'}"
        )
    if symbol.similar:
        nearest = short(max(symbol.similar, key=lambda other: _alike(other, symbol.words)))
        return f"{words}: torch has {nearest if nearest != words else 'one with other arguments'}"
    if symbol.expected_of:
        return f"{words}: {symbol.expected_of} has no such function"
    return f"{words}: no library exports it"


def short(words: str) -> str:
    """A function as a person would write it, shortened to fit a line or two."""
    plain = _STRING.sub(lambda match: "std::__cxx11::string" if "cxx11" in match[0] else "std::string", words)
    plain = re.sub(r", std::allocator<[^<>]*> ?(?=>)", "", plain)
    return plain if len(plain) <= _LONGEST else f"{plain.partition('(')[0][:_LONGEST]}(...)"


def older_library(symbols: tuple[MissingSymbol, ...]) -> MissingSymbol | None:
    """The first symbol that an existing library should have."""
    return next(
        (symbol for symbol in symbols if symbol.expected_of and not symbol.name.startswith("_Z")), None
    )


def library_name(symbol: MissingSymbol) -> str:
    """The name of the library that should have the symbol."""
    return file_name(symbol.expected_of)


def _alike(first: str, second: str) -> int:
    """The length of the common prefix."""
    pairs = zip(first, second, strict=False)
    return next(
        (index for index, (letter, other) in enumerate(pairs) if letter != other),
        min(len(first), len(second)),
    )


def _without_abi(words: str) -> str:
    plain = _STRING.sub("std::string", words).replace("std::__cxx11::", "std::").replace("[abi:cxx11]", "")
    return re.sub(r"\s+", "", plain)
