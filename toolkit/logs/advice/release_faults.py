"""Advice on faults of a package's own code, which another release may not have."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.advice.inputs import KEY
from verl_doctor.toolkit.logs.advice.installed import dated, release_of, versions_in
from verl_doctor.toolkit.logs.advice.members import NO_MEMBER
from verl_doctor.toolkit.logs.advice.places import (
    NONE,
    OUTSIDE,
    PASSING,
    Place,
    installing,
    is_wordless,
    quoted_source,
    shown_at,
)
from verl_doctor.toolkit.logs.asserted import in_words
from verl_doctor.toolkit.logs.blame import KNOWN, is_of_the_job, own_frames, package_of
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.packages import distribution, is_served, owner_of
from verl_doctor.toolkit.logs.python_errors import Raised
from verl_doctor.toolkit.logs.releases import fault_of, has_fault, instead_of
from verl_doctor.toolkit.logs.repairs import repairs_of

_CALLERS = 2  # the deepest places, of which those of verl may have been repaired
_MOST_REPAIRS = 2
# Repairs of a function that only called what failed: one of a function that was often changed is hardly the
# fault.
_OF_CALLER = 1
_RECIPE = re.compile(r"/(recipes?|examples?)/")
# Exceptions by which a package's own code fails, those that its input may cause too, and packages that call
# what others give them.
_INTERNAL = frozenset(
    {"AttributeError", "AssertionError", "NameError", "UnboundLocalError", "NotImplementedError"}
)
_ON_INPUT = frozenset({"KeyError", "IndexError", "TypeError"})
_OF_INPUT = re.compile(r"'(?:str|list|dict|tuple|int|float|bool|set)' object")
_NO_RELEASE = re.compile(
    r"between instances of '(?:NoneType' and 'str|str' and 'NoneType|NoneType' and 'Version)'"
    r"|expected string or bytes-like object"
)
_RELEASE = re.compile(r"\w*[vV]ersion\w*")
_COMPUTING = frozenset({"torch", "numpy", "triton", "pandas", "datasets"})
# Engines and compilers, whose checks are of their own state: what their input must be, they check where they
# take it.
_ENGINES = frozenset(
    {"verl", "vllm", "vllm_ascend", "sglang", "torch", "triton", "flashinfer", "lmcache", "fla"}
)


def known_fault(raised: Raised, lines: Sequence[Line]) -> str:
    """Return advice on a known fault of a release, "" if the log names a release that does not have it."""
    fault = fault_of(raised)
    if fault is None:
        return ""
    if any(not has_fault(fault, version) for version in versions_in(fault.package, lines)):
        return ""
    how = installing(fault.package, fault.without, raised.frames)
    return instead_of(fault, release_of(fault.package, lines), how)


def of_recipe(raised: Raised) -> str:
    """Return advice on a recipe or example that does not fit the release of verl that runs it."""
    own = own_frames(raised.frames)
    if raised.name not in {"AttributeError", "TypeError", "ImportError", "ModuleNotFoundError"} or not own:
        return ""
    if not (is_of_the_job(own[-1]) or package_of(own[-1]) == "verl"):
        return ""
    if (found := _RECIPE.search(own[-1].path)) is None:
        return ""
    return (
        f"if this {found[1].removesuffix('s')} is unchanged, it was written for another release of "
        "verl: use the one of the release that runs, or install the verl that its README names"
    )


def without_release(raised: Raised, place: Place) -> str:
    """Return advice on a package whose release is compared and unknown, because it is not installed."""
    if (
        raised.name != "TypeError"
        or _NO_RELEASE.search(raised.message) is None
        or not own_frames(raised.frames)
    ):
        return ""
    compared = next(
        (
            found[0]
            for frame in reversed(own_frames(raised.frames))
            if package_of(frame) != "packaging" and (found := _RELEASE.search(frame.code))
        ),
        "",
    )
    if not compared or "'str'" in raised.message.partition(" and ")[0]:
        return ""
    engine = (
        (
            ": if it is the engine's, install vllm or sglang with the job's Python, and set rollout.name to "
            "the one that is installed"
        )
        if place.package == "verl"
        else ""
    )
    return (
        f"{compared} is empty: the package whose release {place.at} compares is not installed in this "
        f"Python, or has no metadata (pip list){engine}"
    )


def repaired(raised: Raised, lines: Sequence[Line]) -> str:
    """Return which releases of verl repaired the function that failed, or that called what failed."""
    own = own_frames(raised.frames)
    while own and package_of(own[-1]) in PASSING:
        own = own[:-1]
    nearest = [frame for frame in reversed(own[-_CALLERS:]) if package_of(frame) == "verl"]
    if not nearest or raised.name in OUTSIDE:
        return ""
    installed = release_of("verl", lines)
    found = next(
        (
            (frame, known)
            for frame in nearest
            if (known := list(repairs_of(frame, installed)))
            and (frame is own[-1] or len(known) <= _OF_CALLER)
        ),
        None,
    )
    if found is None:
        return ""
    frame, known = found
    shown = "; ".join(
        f"{repair.release} (verl-project/verl#{repair.number})" for repair in known[:_MOST_REPAIRS]
    )
    return (
        f"releases of verl repaired {frame.function}, which failed here, in {shown}: if this is that fault, "
        f"{installing('verl', f'>={known[0].release}', (frame,))}, or take the change into the tree that "
        "runs"
    )


def unexplained(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on a fault inside a package that its message does not explain.

    It is derived from the kind of the exception and from what called the package.

    It proposes another release only where the traceback gives a reason: two packages that meet there, or a
    package that does not define what its own code uses.
    """
    package, is_check = place.package, raised.name == "AssertionError"
    if not package or (package in PASSING and not is_check):
        return ""
    if raised.name not in _INTERNAL | _ON_INPUT and (
        (package not in KNOWN and not is_served(package)) or raised.name in OUTSIDE
    ):
        return ""
    if is_check and not is_wordless(raised.message) and package not in _ENGINES:
        return ""
    advice = [_fact(raised, place)]
    if repairs := repaired(raised, lines):
        advice.append(repairs)
    elif other := _adapted(raised, place):
        advice.append(
            f"{place.at} is the part of {package} for {other}, and this {other} is of another release "
            f"than the one for which it was written: install the {other} that this {package} names (its "
            f"release notes, pip show {package}), the one before if it came with an upgrade of {other}, "
            f"or a newer {package}"
        )
    elif place.caller and ":" not in place.caller:
        shown = "verl-doctor matrix" if place.caller == "verl" else f"pip check, pip show {place.caller}"
        advice.append(
            f"check whether {place.caller} and {dated(package, lines)} fit ({shown}), and install the "
            f"releases that {place.caller} requires"
        )
    elif _is_own_fault(raised, package):
        advice.append(
            f"that is a fault of this release of {package}, or files of two releases are mixed: pip "
            f"install --force-reinstall {distribution(package)} in another release than "
            f"{dated(package, lines) if dated(package, lines) != package else 'the installed one'}, the "
            "one before if it came with an upgrade, otherwise a newer one"
        )
    else:
        advice.append("if it began with an upgrade, return to the releases before it")
    return "; ".join([*advice, f"search the tracker of {package} for these words"])


def passed_on(raised: Raised, place: Place) -> str:
    """Return advice on an exception in a package that computes with what it is given, such as torch.

    The advice concerns the package that gave it.

    "" if a file of the job gave it, which is what to correct.
    """
    if place.package not in _COMPUTING or raised.name in OUTSIDE:
        return ""
    giver = next(
        (frame for frame in reversed(own_frames(raised.frames)) if package_of(frame) not in PASSING), None
    )
    if giver is None or is_of_the_job(giver) or package_of(giver) not in KNOWN:
        return ""
    package = package_of(giver)
    code = f" ({shown})" if (shown := quoted_source(giver.code)) else ""
    return (
        f"compare the exception with what {package} gives {place.package} at {shown_at(giver)}{code}: print "
        "the values before this line to find the setting, the data or the weights from which they come; "
        f"search the tracker of {package} for these words"
    )


def _adapted(raised: Raised, place: Place) -> str:
    """Return the package that called a part of another one that is named after it.

    An example is modelopt/plugins/transformer_engine.py; "" for none.
    """
    path = own_frames(raised.frames)[-1].path if own_frames(raised.frames) else ""
    inside = re.split(r"[/.]", path.rpartition(f"/{place.package}/")[2])[:-1]
    return next(
        (
            package_of(frame)
            for frame in reversed(raised.frames)
            if package_of(frame) in {*inside} - {"", place.package, *PASSING}
        ),
        "",
    )


def _fact(raised: Raised, place: Place) -> str:
    """Return what an exception without an explanation states about the package that raised it."""
    package, condition = place.package, in_words(place.code)
    code = f": {shown}" if (shown := quoted_source(place.code)) and not condition else ""
    by = f", called by {place.caller}" if place.caller else ""
    if raised.name == "AssertionError":
        if condition:
            where = f" ({by.removeprefix(', ')})" if by else ""
            return (
                f"{package} checks at {place.at}{where} that {condition}; find what sets these values: "
                "settings of the job, its data, the weights, or the number of GPUs"
            )
        explained = "" if is_wordless(raised.message) else "the exception states what is wrong: "
        return f"{explained}a check in {package} fails at {place.at}{code}{by}"
    if NONE in raised.message:
        return f"a value that {package} needs at {place.at} was never set{code}{by}"
    if raised.name == "KeyError" and KEY.fullmatch(raised.message.strip()):
        return (
            f"what {package} reads at {place.at}{by} has no {raised.message.strip()}{code}: compare it with "
            f"what {package} documents for this input, and with the file from which it comes (config.json, "
            "the data, the response of a service)"
        )
    if raised.name == "IndexError":
        return (
            f"what {package} reads at {place.at}{by} is empty or shorter than it expects{code}: look for an "
            "empty row, response or list in what it was given"
        )
    if raised.name not in _INTERNAL or _OF_INPUT.search(raised.message):
        return (
            f"compare the input on which {package} fails at {place.at}{by} with what its documentation "
            f"requires{code}"
        )
    return f"the code of {package} fails at {place.at}{by}{code}"


def _is_own_fault(raised: Raised, package: str) -> bool:
    """Return whether a package uses a name or an attribute of its own that it does not define."""
    if raised.name in {"NameError", "UnboundLocalError"}:
        return True
    found = NO_MEMBER.search(raised.message) if raised.name == "AttributeError" else None
    if found is None or _OF_INPUT.search(raised.message) or NONE in raised.message:
        return False
    return owner_of(found[1] or found[3] or found[5]) in {"", package}
