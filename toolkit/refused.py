"""What the change engine says instead of doing harm."""

from __future__ import annotations

import os


class Refused(Exception):  # noqa: N818 - it is an answer, not a defect
    """One clear sentence that names the thing, the cause and the next step."""


def said_by(error: OSError) -> str:
    """An operating system's error as the beginning of a sentence: the file and the cause."""
    cause = error.strerror or str(error) or type(error).__name__
    named = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    return f"{named}: {cause}" if named else cause
