"""Parses the error output of pip and uv: finds the decisive line among many."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.text import without_middle

_LONGEST_REASON = 400  # characters
# How pip 22 to 26 and uv 0.4 to 0.13 report an unreachable index. Checked first, because pip goes on to
# report that there is no such version.
_NO_ANSWER = re.compile(
    r"Retrying \(Retry\(|Failed to fetch|error sending request|network was disabled|Credentials not correct",
    re.IGNORECASE,
)
_CAUSE = re.compile(
    (
        r"Connection (?:refused|reset)[^()'\"\n]*|(?:connection |read |operation |connect )?timed out"
        r"|Cannot connect to proxy|Name or service not known|Temporary failure in name resolution"
        r"|No address associated with hostname|Network is unreachable|No route to host"
        r"|certificate verify failed|invalid peer certificate|HTTP status [^(\n]*\([^)\n]*\)|\b40[13] Error"
        r"|too many \d+ error responses|network was disabled|dns error"
    ),
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(r"://[^/\s@]+@")
_TOO_OLD = re.compile(r"no such option: \S+|unexpected argument '\S+'")
_PIP_NONE = re.compile(r"a version that satisfies the requirement ([^\s;]+)([^\n]*)")
_PIP_SOME = re.compile(r"\(from versions: (?!none)")
_PIP_BY = re.compile(r"\(from (?!versions:)([^()]+)\)")
_PIP_CLASH = re.compile(r"Cannot install [^\n]*conflicting dependencies")
_PIP_CAUSES = re.compile(r"^The conflict is caused by:\n((?:[ \t]+\S[^\n]*(?:\n|\Z))+)", re.MULTILINE)
_PIP_OTHER_PYTHON = re.compile(r"Package '[^\n]*requires a different Python: [^\n]*")
# Further output of pip that explains nothing.
_BESIDES = re.compile(r"error: *(?:Ignored the following|ResolutionImpossible|Exception:)", re.IGNORECASE)
# uv draws an arrow up to 0.10; later it prints "cause:".
_UV_REASON = re.compile(
    r"No solution found.*?(?:╰─▶|cause:) (.*?)(?=\n\s*\n|\n\s*hint:|\Z)", re.DOTALL | re.IGNORECASE
)
_UV_MARKER = re.compile(r"\{[^}]*\}")
_UV_NONE = re.compile(r"there (?:is|are) no versions? of ([^\s,]+)|(\S+) was not found in the")


@dataclass(frozen=True)
class Complaint:
    """An installer's parsed failure: the decisive line, and a requirement that no index meets.

    The requirement is given if that is the reason.
    """

    outcome: Literal["unsatisfiable", "unanswered"]
    reason: str
    not_offered: str = ""


def understood(output: str) -> Complaint:
    """Find the decisive line of the output of pip or uv before it failed.

    Only messages known to mean it are called unsatisfiable. Anything else leaves the question open.
    """
    if clash := _pip_clash(output):  # an index must have responded, perhaps at the second attempt
        return clash
    if unreachable := _NO_ANSWER.search(output):
        cause = _CAUSE.search(output)
        why = cause[0] if cause else _line_around(output, unreachable.start())
        who = "not every index" if _PIP_SOME.search(output) else "no index"
        return Complaint("unanswered", _one_line(f"{who} answered ({why})"))
    if too_old := _TOO_OLD.search(output):
        return Complaint("unanswered", _one_line(f"this installer supports no dry run ({too_old[0]})"))
    return (
        _uv_complaint(output)
        or _pip_complaint(output)
        or Complaint("unanswered", _one_line(_error_line(output)))
    )


def _pip_clash(output: str) -> Complaint | None:
    clash, causes = _PIP_CLASH.search(output), _PIP_CAUSES.search(output)
    if clash is None:
        return None
    lines = [line.strip() for line in causes[1].splitlines()] if causes else []
    text = "; ".join(line.replace("The user requested", "the command requests") for line in lines)
    return Complaint("unsatisfiable", _one_line(text or clash[0]))


def _uv_complaint(output: str) -> Complaint | None:
    match = _UV_REASON.search(output)
    if match is None:
        return None
    reason = " ".join(_UV_MARKER.sub("", match[1].replace("│", " ")).split())
    if none := _UV_NONE.search(reason):
        wanted = none[1] or _pinned(reason, none[2])
        by = re.search(rf"([\w.-]+)(?:==\S+)? depends? on {re.escape(wanted)}(?=[\s,])", reason)
        return _not_offered(wanted, by[1] if by else "")
    return Complaint("unsatisfiable", _one_line(reason))


def _pinned(reason: str, name: str) -> str:
    """Return the requirement on a package that does not exist, as uv names it further on."""
    found = re.search(rf"(?:depends? on|you require) ({re.escape(name)}[^\s,]*)", reason)
    return found[1] if found else name


def _pip_complaint(output: str) -> Complaint | None:
    if none := _PIP_NONE.search(output):
        wanted, rest = none[1], none[2]
        other = re.search(rf"[ ;]{re.escape(wanted.partition('==')[2])} Requires-Python ([^;\n]+)", output)
        if other and "==" in wanted:
            return Complaint("unsatisfiable", f"{wanted} requires Python {other[1].strip()}")
        by = _PIP_BY.search(rest)
        return _not_offered(wanted, by[1] if by else "")
    if other_python := _PIP_OTHER_PYTHON.search(output):
        return Complaint("unsatisfiable", _one_line(other_python[0]))
    return None


def _not_offered(wanted: str, by: str) -> Complaint:
    who = f", which {by} requires," if by else ""
    return Complaint("unsatisfiable", f"{wanted}{who} is not on any configured index", wanted)


def _error_line(output: str) -> str:
    """Return the first line marked as an error that has content, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:") and not _BESIDES.match(line)]
    return errors[0][len("error:") :] if errors else lines[-1] if lines else "it failed without any output"


def _line_around(text: str, position: int) -> str:
    return text[text.rfind("\n", 0, position) + 1 :].partition("\n")[0]


def _one_line(text: str) -> str:
    return without_middle(" ".join(_CREDENTIALS.sub("://", text).split()), _LONGEST_REASON)
