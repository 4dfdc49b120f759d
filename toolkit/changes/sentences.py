"""Operating-system errors as sentences, and messages on stderr about side effects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from verl_doctor.toolkit.system.errors import Refused, os_error_text
from verl_doctor.toolkit.text import harmless


@contextmanager
def sentences(beginning: str) -> Iterator[None]:
    """Turn an operating-system error into a refusal that begins with this text."""
    try:
        yield
    except OSError as error:
        raise Refused(f"{beginning}: {os_error_text(error)}") from error


def sentence(error: OSError | Refused) -> str:
    """Return the cause as part of a sentence."""
    return os_error_text(error) if isinstance(error, OSError) else str(error)


def announce(text: str) -> None:
    """Print on stderr what was done in addition to what was requested."""
    if sys.stderr is not None:
        print(f"verl-doctor: {harmless(text)}", file=sys.stderr, flush=True)
