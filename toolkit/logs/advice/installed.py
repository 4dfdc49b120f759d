"""Releases of packages that a log names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from verl_doctor.toolkit.logs.lines import Line

# What pip and uv print of the releases that they have installed.
_INSTALLS = re.compile(r"Successfully installed |^ *\+ [\w.-]+==")


def this_release(package: str, lines: Sequence[Line]) -> str:
    """Return the release of a package that the log names, in parentheses; "" if it names none."""
    version = release_of(package, lines) if package else ""
    return f" (this is {version})" if version else ""


def dated(package: str, lines: Sequence[Line]) -> str:
    """Return a package with the release that the log names, the one installed last."""
    version = release_of(package, lines)
    return f"{package} {version}" if version else package


def has_release(package: str, bounds: str, lines: Sequence[Line]) -> bool:
    """Return whether the log names a release of a package within these bounds (">=4.51").

    If it does, proposing them may change nothing.
    """
    return any(is_within(version, bounds) for version in versions_in(package, lines))


def release_of(package: str, lines: Sequence[Line]) -> str:
    """Return the release of a package that the log shows as installed last.

    Otherwise the first release that the log names; "" if it names none.
    """
    installed = [line for line in lines if _INSTALLS.search(line.text)]
    last = [*versions_in(package, installed)][-1:]
    return last[0] if last else next(versions_in(package, lines), "")


def is_within(version: str, bounds: str) -> bool:
    """Return whether a release is within bounds; False if either is unknown or not one."""
    try:
        return bool(version and bounds) and SpecifierSet(bounds).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def versions_in(package: str, lines: Sequence[Line]) -> Iterator[str]:
    """Yield the releases of a package that the log names, in its order."""
    form = re.compile(
        (
            rf"(?<![\w/.-]){re.escape(package)}(?:==|: +| (?:API server )?version:? | +| \(v?|-)v?(\d+\.\d+"
            r"(?:\.\d+)?(?:[.+]?(?:post|rc|dev)\w*)?)(?![\w.])"
        ),
        re.IGNORECASE,
    )
    for line in lines:
        if found := form.search(line.text):
            yield found[1]
