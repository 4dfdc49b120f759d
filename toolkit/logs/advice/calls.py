"""Advice on calls whose arguments or results do not fit the function that is called."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.advice.installed import dated
from verl_doctor.toolkit.logs.advice.places import Place, is_named_by, quoted_source
from verl_doctor.toolkit.logs.blame import own_frames
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.packages import distribution, is_served, owner_of
from verl_doctor.toolkit.logs.python_errors import Frame, Raised

CALL = re.compile(
    r"([\w.<>]+)\(\) (got an unexpected keyword argument '(\w+)'|(?:takes|missing) .*(?:argument|given).*)"
)
_UNNAMED_CALL = re.compile(r"Unexpected keyword argument '(\w+)'")
# Ray checks the arguments of a call before it sends them; it does not name what is called.
_RAY_CALL = re.compile(
    r"got an unexpected keyword argument '(\w+)'|missing a required argument: '(\w+)'"
    r"|too many positional arguments"
)
_COMPILED = re.compile(
    r"(?:^|/)(\w+)/(?:\w+/)*\w+\.(?:pyx|pxi|pxd)$"
)  # a compiled module of a package, without its folder
_PASSED_ON = re.compile(r"\(\*\*\w+(?:\.\w+)*\)")
_TWICE = re.compile(r"([\w.]+)\(\) got multiple values for (?:keyword )?argument '(\w+)'")
_UNPACKED = re.compile(r"(too many|not enough) values to unpack \(expected (?:at least )?(\d+)")
_ASSIGNS = re.compile(r"(?:for )?[\w.]+(?:, ?[\w.]+)+ (?:=|in) (?:await )?([\w.]+)\(")
_NOT_PASSED = re.compile(
    r"^`?(\w+)`? (?:must be|is|should be|has to be) (?:passed|provided|a kwarg|given|specified)\b|\b"
    r"(?:must|should|need to) (?:pass|provide) `?(\w+)`?"
)


def refused(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on an argument that a function does not accept."""
    found = CALL.search(raised.message)
    if place.package == "ray" and raised.name == "TypeError" and (remote := _RAY_CALL.match(raised.message)):
        what = (
            f"does not accept {remote[1]}"
            if remote[1]
            else f"requires {remote[2]}"
            if remote[2]
            else "is given more arguments than it takes"
        )
        caller = place.caller or "the caller"
        return (
            f"the actor or remote function that {caller} calls {what}: they are of different releases, "
            "or a subclass of the job or of a recipe overrides it with other parameters. Install a "
            f"newer {place.caller if ':' not in caller else 'release of the code'}, or give that class "
            "the parameter"
        )
    if found is None and place.package and (unnamed := _UNNAMED_CALL.match(raised.message)):
        return (
            f"{place.package} passes {unnamed[1]} to a class that does not accept it: they are of "
            f"different releases. Install the release of the class's package that {place.package} was "
            f"made for (pip show {place.package}), or a newer {place.package}"
        )
    if found is None or raised.name != "TypeError":
        return ""
    function, what, keyword = found.groups()
    cls = function.rpartition(".")[0].rpartition(".")[2] or function
    owner = owner_of(cls)
    is_other = place.caller not in {"", "verl"} and function.endswith("__init__") and owner != "transformers"
    if owner and owner == place.package and is_other:
        if ":" in place.caller:
            return (
                f"correct the arguments at {place.caller}: {function} of {dated(owner, lines)} does not "
                f"accept {keyword or 'them'}; or install a {owner} that does"
            )
        return (
            f"install the {owner} that {place.caller} requires (pip install '{place.caller}[{owner}]', "
            f"or as pip show {place.caller} names it), or a {place.caller} for this "
            f"{dated(owner, lines)}: {place.caller} passes {function} {keyword or 'arguments'}, which "
            "it does not accept"
        )
    if owner and owner == place.package and keyword and re.search(rf"\b{keyword}\s*=", place.code):
        return (
            f"{dated(owner, lines)} passes {keyword} to its own {function}, which does not accept it: a "
            "fault of this release, or files of two releases are mixed. Install a newer "
            f"{distribution(owner)} (pip install -U --force-reinstall {distribution(owner)}), within what "
            f"{place.caller or 'the job'} accepts"
        )
    if owner and owner == place.package and len(raised.frames) > 1:
        return (
            f"a class of the job or of another package no longer fits {function} of this "
            f"{dated(owner, lines)}: install the {owner} that it was made for"
        )
    of = f" of {dated(owner, lines)}" if owner else ""
    if place.package == "" and place.words:
        is_its = owner and is_named_by(owner, cls, raised.frames, lines)
        other = (
            (
                f", or{'' if is_its else f', if it is that of {owner} and none of the job,'} install a "
                f"{owner} that accepts it"
            )
            if owner
            else ""
        )
        of = of if is_its else ""
        fault = (
            f"does not accept {keyword}" if keyword else "is called with arguments that it does not accept"
        )
        return f"{function}{of} {fault}: correct the call at {place.words}{other}"
    if not place.package:
        return ""
    if owner:
        return (
            f"{place.package} calls {function}{of} with arguments that it does not accept "
            f"({what.partition(' (')[0]}): they are of different releases. Install the {owner} that "
            f"{place.package} requires (pip show {place.package}), or a {place.package} for this {owner}"
        )
    if other := served_package(raised.frames, place.package):
        return (
            f"{place.package} calls {function} of {other} with arguments that it does not accept: they "
            f"are of different releases. Install the {distribution(other)} that {place.package} "
            f"requires (pip show {place.package}), or a newer {place.package}"
        )
    if keyword and _PASSED_ON.search(place.code) and not re.search(rf"\b{keyword}\b", place.code):
        code = f" ({shown})" if (shown := quoted_source(place.code)) else ""
        return (
            f"{keyword} comes from a configuration that {place.at} passes on{code}, and this "
            f"{function.rpartition('.')[0] or function} does not take it: remove {keyword} from that "
            f"configuration, or install the {place.package} for which it was written"
        )
    if (
        "." not in function
        and (compiled := _COMPILED.search(raised.frames[-1].path))
        and compiled[1] != place.package
    ):
        return (
            f"{place.package} calls {function} of {dated(compiled[1], lines)} with arguments that it "
            f"does not accept: they are of different releases. Install the {distribution(compiled[1])} "
            f"that {place.package} requires (pip show {place.package}; pip install -U "
            f"{distribution(compiled[1])} if it is old), or a newer {place.package}"
        )
    if "." not in function:
        return (
            f"{place.package} calls {function} with arguments that it does not accept: {place.package} "
            f"and the package that provides {function} are of different releases. Install the release "
            f"of that package that {place.package} names (its requirements, Dockerfile or README), or a "
            f"newer {place.package}"
        )
    return (
        (
            f"{place.package} calls {function} with arguments that it does not accept: the class belongs to "
            f"the job or to another package, and was written for another {dated(place.package, lines)}. "
        )
        + (f"Give the function a parameter {keyword}, or install" if keyword else "Install")
        + f" the {place.package} that it was written for"
    )


def served_package(frames: Sequence[Frame], package: str) -> str:
    """Return the other package that a package calls in a file named after it.

    "" if the deepest place is in no such file.
    """
    own = own_frames(frames)
    words = re.findall(r"[a-z]\w*", own[-1].path.rpartition(f"/{package}/")[2]) if own else []
    return next((word for word in words if is_served(word) and word != package), "")


def twice(raised: Raised, place: Place) -> str:
    """Return advice on an argument that a call gets twice, as when data has a column of the same name."""
    found = _TWICE.search(raised.message) if raised.name == "TypeError" else None
    if found is None:
        return ""
    newer = f", or install a newer {place.package}" if place.package else ""
    return (
        f"{found[1]} gets {found[2]} twice: if a column of the data or a key of the settings that are "
        f"passed on is called {found[2]}, rename it{newer}"
    )


def unpacked(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on a call that returns more or fewer values than its caller takes."""
    found = _UNPACKED.search(raised.message) if raised.name == "ValueError" else None
    call = _ASSIGNS.match(place.code)
    if found is None or call is None or call[1].startswith(("zip", "enumerate", "range")):
        return ""
    function = call[1].rpartition(".")[2]
    owner = owner_of(function)
    of = f" of the installed {dated(owner, lines)}" if owner else ""
    count = f"{'more' if found[1] == 'too many' else 'fewer'} than {found[2]} values"
    rest = (
        f" Take the rest too where it is called (a, b, *_ = {function}(...)),"
        if found[1] == "too many"
        else ""
    )
    newer = f" install a {place.package} for this release" if place.package else " change the call"
    return (
        f"{function}{of} returns {count}, which {place.at} does not expect: they are of different "
        f"releases.{rest}{newer}, or install the {owner or 'release'} that the code was written for"
    ).replace(".  ", ". ")


def not_passed(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on an argument that one package does not pass to another, which needs it."""
    found = _NOT_PASSED.search(raised.message) if raised.name in {"AssertionError", "ValueError"} else None
    if found is None or not place.package or place.caller in {"", "verl"} or ":" in place.caller:
        return ""
    both = (
        f"{place.caller} does not pass {found[1] or found[2]}, which {dated(place.package, lines)} needs here"
    )
    return (
        f"{both}: install a newer {place.caller}, or the {place.package} that it was made for (pip show "
        f"{place.caller})"
    )
