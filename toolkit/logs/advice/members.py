"""Advice on a member of a class, or a parameter of a function, missing from the installed release.

Other releases of its package have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from verl_doctor.toolkit.logs.advice.calls import CALL
from verl_doctor.toolkit.logs.advice.installed import dated, has_release
from verl_doctor.toolkit.logs.advice.places import Place, installing, is_named_by
from verl_doctor.toolkit.logs.blame import package_of
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.packages import extended, owner_of
from verl_doctor.toolkit.logs.python_errors import Raised
from verl_doctor.toolkit.logs.releases import before, members_of, parameters_of

NO_MEMBER = re.compile(
    r"['`](?:\w+\.)*(\w+)['`] object has no attribute ['`](\w+)['`]"
    r"|type object '(\w+)' has no attribute '(\w+)'|(?:^|\] )([A-Z]\w+) has no attribute (\w+)"
)
_OMITTED = re.compile(r"missing 1 required (?:positional|keyword-only) argument: '(\w+)'")


def of_release(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return which releases of a package have the member or parameter the installed one lacks or requires."""
    if raised.name == "AttributeError" and (found := NO_MEMBER.search(raised.message)):
        return _member(
            found[1] or found[3] or found[5], found[2] or found[4] or found[6], raised, place, lines
        )
    if raised.name == "TypeError" and (call := CALL.search(raised.message)):
        return _parameter(call[1], call[2], call[3], raised, place, lines)
    return ""


def package_of_member(raised: Raised) -> str:
    """Return the package of which other releases have what an exception finds missing.

    That is a member or a parameter; "" if no such package is known.

    Both the class and its member must be those of the package: code of the job that uses them was written for
    such a release.
    """
    if raised.name == "AttributeError" and (found := NO_MEMBER.search(raised.message)):
        cls = found[1] or found[3] or found[5]
        packages = members_of(cls, found[2] or found[4] or found[6])
    elif raised.name == "TypeError" and (call := CALL.search(raised.message)) and call[3]:
        cls = call[1].partition(".")[0]
        packages = parameters_of(call[1].removesuffix(".__init__"), call[3])
    else:
        return ""
    return owner_of(cls) if owner_of(cls) in packages else ""


def _member(cls: str, name: str, raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    package, limits = _nearest(members_of(cls, name), cls, raised, lines)
    base = cls
    if not package and (base := extended(cls)):
        package, limits = _nearest(members_of(base, name), base, raised, lines)
    if not package:
        return ""
    if base == cls and place.package == package:
        return ""  # the package's own code sets it later than it reads it, or not at all
    has = f"{base} of {package} has {name} in {package}{limits} only"
    if base != cls and place.package == package:
        # The package's own code expects what a constructor of the package sets, and the class replaces that.
        other = before(limits)
        return (
            _install(
                package, other, raised, lines, f"{has}, and {cls} was written for a {package} before that"
            )
            if other
            else ""
        )
    user = place.words or "the caller"
    return _install(
        package,
        limits,
        raised,
        lines,
        f"{has}, and {user} uses it",
        place.package,
        f"the release of {place.package} for the installed one",
    )


def _parameter(
    function: str, what: str, keyword: str | None, raised: Raised, place: Place, lines: Sequence[Line]
) -> str:
    name = function.removesuffix(".__init__")
    user = place.words or "the caller"
    if keyword:
        package, limits = _nearest(parameters_of(name, keyword), name, raised, lines)
        why = f"{name} of {package} takes {keyword} in {package}{limits} only, and {user} passes it"
        other = f"the release of {place.package} for the installed one"
    else:
        omitted = _OMITTED.search(what)
        package, since = (
            _nearest(parameters_of(name, omitted[1]), name, raised, lines)
            if omitted is not None
            else ("", "")
        )
        limits = before(since)
        why = (
            f"{name} of {package} takes {omitted[1] if omitted else ''} from {package}{since} on, and "
            f"{user} does not pass it"
        )
        other = f"a newer {place.package}"
    if not package or not limits:
        return ""
    if place.package == package:
        return _install(
            package,
            limits,
            raised,
            lines,
            (
                f"{why.partition(', and ')[0]}, and {package} itself calls it like that: files of two "
                "states are mixed, or this release has the fault"
            ),
        )
    return _install(package, limits, raised, lines, why, place.package, other)


def _nearest(found: Mapping[str, str], name: str, raised: Raised, lines: Sequence[Line]) -> tuple[str, str]:
    """Return the package that an exception is about, with its bounds.

    It is the owner of the name, or the only package in the traceback.
    """
    cls = name.partition(".")[0]
    at = {package_of(frame) for frame in raised.frames}
    near = [package for package in found if owner_of(cls) == package or (not owner_of(cls) and package in at)]
    is_its = bool(near) and (
        near[0] == package_of_member(raised) or is_named_by(near[0], cls, raised.frames, lines)
    )
    if len(near) != 1 or not is_its:
        return "", ""
    return near[0], found[near[0]]


def _install(
    package: str,
    limits: str,
    raised: Raised,
    lines: Sequence[Line],
    why: str,
    user: str = "",
    other: str = "",
) -> str:
    """Return the advice, unless the log names a release that has what is missing."""
    if has_release(package, limits, lines):
        return ""
    instead = f", or {other}" if user and user != package else ""
    installed = dated(package, lines)
    known = f" (the log names {installed})" if installed != package else ""
    return (
        f"{why}{known}: {installing(package, limits, raised.frames)} with the job's Python, on every "
        f"node{instead}"
    )
