"""`Refused`, which the change engine raises to decline, and operating-system errors as text."""

from __future__ import annotations

import os


class Refused(Exception):  # noqa: N818 - it is an answer, not a defect
    """One clear sentence that names the subject, the cause and the next step."""


def os_error_text(error: OSError) -> str:
    """Return an operating-system error as the beginning of a sentence: the file and the cause."""
    cause = reason_of(error)
    named = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    return f"{named}: {cause}" if named else cause


def reason_of(error: Exception) -> str:
    """Return only the cause: the operating system's message, the exception's own, or its class name."""
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
