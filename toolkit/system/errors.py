"""`Refused`, with which the change engine declines, and errors of the operating system in words."""

from __future__ import annotations

import os


class Refused(Exception):  # noqa: N818 - it is an answer, not a defect
    """One clear sentence that names the thing, the cause and the next step."""


def said_by(error: OSError) -> str:
    """An operating system's error as the beginning of a sentence: the file and the cause."""
    cause = reason_of(error)
    named = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    return f"{named}: {cause}" if named else cause


def reason_of(error: Exception) -> str:
    """The cause alone: what the operating system says, or the exception itself, or the name of one without words."""
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
