"""The remedy for an exception of which only the message and the places where it was raised are given."""

from __future__ import annotations

from io import BytesIO

from verl_doctor.toolkit.logs.causes import remedy_of
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.excerpt import excerpt

PACKAGES = "/venv/lib/python3.11/site-packages"


def remedy(error: str, *places: str | tuple[str, str], before: str = "") -> str:
    """The remedy for an exception raised at these places, the deepest last, each a path, or a path with the line of code."""
    located = [(place, "call()") if isinstance(place, str) else place for place in places]
    frames = "".join(f'  File "{path}", line 12, in run\n    {code}\n' for path, code in located)
    log = f"{before}Traceback (most recent call last):\n{frames}{error}\n"
    first = read(excerpt(BytesIO(log.encode()).read).lines, "run.log").first
    assert first is not None
    return remedy_of(first)
