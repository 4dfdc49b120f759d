"""The first cause in a log, and the remedy for an exception of which only its message and places are given."""

from __future__ import annotations

from io import BytesIO

from verl_doctor.toolkit.logs.causes import remedy_of
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.logged_error import LoggedError

PACKAGES = "/venv/lib/python3.11/site-packages"


def remedy(error: str, *places: str | tuple[str, str], before: str = "") -> str:
    """The remedy for an exception raised at these places, the deepest last, each a path, or a path with the line of code."""
    located = [(place, "call()") if isinstance(place, str) else place for place in places]
    frames = "".join(f'  File "{path}", line 12, in run\n    {code}\n' for path, code in located)
    log = f"{before}Traceback (most recent call last):\n{frames}{error}\n"
    return remedy_of(first_cause(log))


def first_cause(log: str) -> LoggedError:
    """The first cause in a log that has one."""
    first = read(excerpt(BytesIO(log.encode()).read).lines, "run.log").first
    assert first is not None
    return first
