"""What the operating system reports, as sentences for people; and what happened on the way, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from verl_doctor.toolkit.system.errors import Refused, said_by
from verl_doctor.toolkit.text import harmless


@contextmanager
def sentences(beginning: str) -> Iterator[None]:
    """Turn an error of the operating system into a refusal that begins so."""
    try:
        yield
    except OSError as error:
        raise Refused(f"{beginning}: {said_by(error)}") from error


def sentence(error: OSError | Refused) -> str:
    """The cause, as part of a sentence."""
    return said_by(error) if isinstance(error, OSError) else str(error)


def announce(text: str) -> None:
    """Print on stderr what was done besides what was wanted."""
    if sys.stderr is not None:
        print(f"verl-doctor: {harmless(text)}", file=sys.stderr, flush=True)
