"""Advice on settings that must be numbers, or multiples of one another."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.advice.places import LONGEST, MOST_FIELDS, NONE, OUTSIDE, Place, quoted_source
from verl_doctor.toolkit.logs.advice.settings import given_keys
from verl_doctor.toolkit.logs.blame import overrides_of
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import Raised

# A number that is no multiple of another one, each after what it is.
_MULTIPLE = re.compile(
    r"((?:[A-Za-z_`'\"][\w`'\".]* ){0,5}[A-Za-z_`'\"][\w`'\".]*)[ :=(]{1,3}(\d{1,9})\)? ?(?:,? ?(?:is"
    r"|are) not (?:evenly )?(?:a multiple of|divisible by)|,? ?(?:must|should|needs to|has to) be "
    r"(?:evenly )?(?:a multiple of|divisible by)) ((?:[A-Za-z_`'\"][\w`'\".]* ){0,5}[A-Za-z_`'\"]"
    r"[\w`'\".]*)[ :=(]{1,3}(\d{1,9})\b"
)
_FILLERS = re.compile(r"\b(?:[Tt]he|[Pp]rovided|[Gg]iven|[Nn]ormalized|[Nn]umber|[Vv]alue)\b ?(?:of )?")
# Operations of which one operand is a text; Python formats a text with %.
_OF_TEXT = re.compile(
    r"unsupported operand type\(s\) for .*'(?:str|NoneType)'|not supported between instances of .*'"
    r"(?:str|NoneType)'|not all arguments converted during string formatting"
    r"|can't multiply sequence by non-int|can only concatenate str"
)
_IS_NUMBER = re.compile(
    r"(?:size|length|len|steps?|epochs?|ratio|coef|lr|freq|nnodes|per_node|per_gpu|temperature"
    r"|utilization|rank|alpha|clip|decay|seed|workers|tokens|seqs|\.n|top_[kp]|momentum|beta\d?|eps)$"
)
_ABSENT_VALUES = frozenset({"null", "None", "~", ""})
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|null|None|\$\{.*")


def divisible(raised: Raised, lines: Sequence[Line]) -> str:
    """Return advice on a number that must be a multiple of another one, with the values that would do."""
    found = _MULTIPLE.search(" ".join(raised.plain.split())[:LONGEST])
    if found is None or raised.name in OUTSIDE:
        return ""
    number, factor = int(found[2]), int(found[4])
    if not factor or not number % factor:
        return ""
    first, second = (_FILLERS.sub("", words).strip(" ,:=`'\"") for words in (found[1], found[3]))
    fitting = [part for part in range(min(number, factor), 0, -1) if number % part == 0][:MOST_FIELDS]
    keys = [
        key
        for name in (first, second)
        for key in given_keys(lines)
        if key.rpartition(".")[2] == name.replace(" ", "_")
    ]
    named = f" ({', '.join(dict.fromkeys(keys))})" if keys else ""
    return (
        f"make {first} a multiple of {second}{named}: {second} of {' or '.join(map(str, fitting))} divides "
        f"{number}, or {first} of {-(-number // factor) * factor} is the next multiple of {factor}"
    )


def no_number(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on a text or nothing that a package computes with: a setting that is no number."""
    if raised.name != "TypeError" or _OF_TEXT.search(raised.message) is None or not place.package:
        return ""
    is_absent = NONE in raised.message
    given = {
        key: value.strip("'\"\\")
        for key, value in overrides_of(lines)
        if _IS_NUMBER.search(key) and (value in _ABSENT_VALUES if is_absent else not _NUMBER.fullmatch(value))
    }
    named = ", ".join(f"{key} is {value or 'empty'}" for key, value in list(given.items())[:MOST_FIELDS])
    code = f" ({shown})" if (shown := quoted_source(place.code)) else ""
    if named:
        return f"set to a number what {place.at} computes with{code}: {named}"
    if is_absent:
        return ""
    return (
        f"{place.at} computes with a text where it needs a number{code}: look for a value in quotes, with a "
        "comma or a unit, or with an exponent that YAML reads as text (1e-6 must be 1.0e-6), in the "
        "settings or the data"
    )
