"""The results of library functions by which a program detects a release or what it accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.api.signatures import fields_of, parameters_of
from verl_doctor.toolkit.collectors.api.value import Found, Instance, Value
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.symbols import Class

_PARSE_VERSION = frozenset(
    {"packaging.version.parse", "packaging.version.Version", "pkg_resources.parse_version"}
)
_READ_VERSION = frozenset({"importlib.metadata.version", "importlib_metadata.version"})
_SEARCHES = frozenset({"re.match", "re.search"})
# Patterns that extract the numbers of a version: `(\d+\.\d+\.?\d*)`.
_TAKES_NUMBERS = re.compile(r"\^?\((?:\\d|\[0-9\])")
PROBES = frozenset({"inspect.signature", "inspect.getfullargspec", "inspect.getargspec"})


def result_of_call(
    name: str, arguments: Sequence[Callable[[], Value]], sources: Sources, versions: Mapping[str, str]
) -> Value:
    """Return the result of the function with this dotted name; None if it is unknown.

    An argument is called for its value; `versions` are those of the examined packages.
    """
    first = arguments[0]() if arguments else None
    if name in _PARSE_VERSION and isinstance(first, str):
        try:
            return Version(first)
        except InvalidVersion:
            return None
    if name in _READ_VERSION:
        return version_of(first, versions)
    if name in PROBES:
        return parameters_of(sources, first)
    if name in _SEARCHES and len(arguments) == 2:
        return _numbers(first, arguments[1]())
    if name == "dataclasses.fields" and isinstance(first, (Class, Instance)):
        return fields_of(sources, first if isinstance(first, Class) else first.of)
    return None


def version_of(package: Value, versions: Mapping[str, str]) -> str | None:
    """Return the version of an examined package, None if it is unknown."""
    return versions.get(package) or None if isinstance(package, str) else None


def _numbers(pattern: Value, text: Value) -> Found | None:
    """Return the result of a search in a version.

    The pattern is not run: it comes from the examined sources.
    """
    if isinstance(pattern, str) and isinstance(text, str) and _TAKES_NUMBERS.match(pattern):
        return Found(text)
    return None
