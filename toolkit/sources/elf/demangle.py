"""Demangles names of C++ symbols, as far as a rule needs them.

The source is the Itanium C++ ABI, itanium-cxx-abi.github.io/cxx-abi/abi.html.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable

from verl_doctor.toolkit.machine import Machine

_LONGEST = 4000  # characters
_MOST = 200  # names on one command line
_SECONDS = 5.0
_LENGTH = re.compile(r"[1-9]\d{0,3}")
_START = re.compile(r"_Z(N[rVK]*[RO]?)?(St)?")
# Constructors, destructors and operators are parts of a name without a length.
_UNNAMED = re.compile(r"[CD][0-5]|cv|[a-z][a-zA-Z]")

# The C++ library's own function, in a child process because too deeply nested names exhaust its stack.
_CHILD = """
import ctypes, json, sys
demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
demangle.restype = ctypes.c_void_p
found = {}
for name in sys.argv[1:]:
    status = ctypes.c_int(1)
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    if text and status.value == 0:
        found[name] = ctypes.string_at(text).decode("utf-8", "replace")
print(json.dumps(found))
"""


def demangled(machine: Machine, names: Iterable[str]) -> dict[str, str]:
    """Return each name as written in C++, or unchanged if it cannot be demangled."""
    every = list(dict.fromkeys(names))
    mangled = [name for name in every if name.startswith("_Z") and name.isascii() and len(name) <= _LONGEST][
        :_MOST
    ]
    found: dict[str, str] = {}
    for argv in (
        ([sys.executable, "-I", "-S", "-c", _CHILD, *mangled], ["c++filt", *mangled]) if mangled else ()
    ):
        try:
            output = machine.run(argv, timeout=_SECONDS)
            if output.code == 0:
                lines = output.stdout.splitlines()
                found = (
                    json.loads(output.stdout)
                    if argv[0] == sys.executable
                    else dict(zip(mangled, lines, strict=False))
                )
                break
        except (OSError, ValueError):
            continue
    return {name: found.get(name, name) for name in every}


def qualified_prefix(name: str) -> str:
    """Return the beginning of a symbol's name that identifies it, no parameters: `_ZN3c104cuda9SetDevice`.

    Empty for anything but a function or object of C++. Template arguments are left out.
    """
    start = _START.match(name)
    if start is None:
        return ""
    at = start.end()
    while at < len(name):
        if length := _LENGTH.match(name, at):
            at = length.end() + int(length[0])
        elif start[1] and (unnamed := _UNNAMED.match(name, at)):
            at = unnamed.end()
        else:
            break
        if not start[1]:
            break
    return name[:at] if start.end() < at <= len(name) else ""


def is_same_name(prefix: str, name: str) -> bool:
    """Return whether a symbol is what the prefix names.

    It may have other arguments or another ABI tag, but it is nothing inside what the prefix names.
    """
    rest = name[len(prefix) :]
    return name.startswith(prefix) and (not prefix.startswith("_ZN") or rest[:1] in {"E", "B", "I"})
