"""Standard output belongs to the report: what plugins and libraries print goes to stderr, and closed streams to nowhere."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

NOBODY_READS = 128 + signal.SIGPIPE
"""The exit code where the reader of stdout is gone: a shell's of a command that the signal ended, and no answer of ours."""


class CannotPrintError(Exception):
    """The answer reached nobody: whatever was found, the command must not end as if it had been read."""


def open_closed_streams() -> None:
    """Give a process that was started with closed streams (`2>&-`) something in their place.

    Otherwise the next file that it opens would become its stderr. Writing to a stdout that was closed fails as before.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_RDWR)):
        if not _is_open(descriptor):
            os.open(os.devnull, flags)  # the lowest free number: this one
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def end_stdout() -> None:
    """All is said: what a plugin prints at exit goes to stderr. Raises OSError when stdout cannot be written."""
    sys.stdout.flush()
    os.dup2(2, 1)


def give_up_stdout() -> None:
    """After a write that failed: what is still buffered goes nowhere, instead of failing again at exit."""
    _give_up(1)


def give_up_stderr() -> None:
    """The same for stderr: what stands there for people must not keep the answer from stdout."""
    _give_up(2)


def _give_up(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextlib.contextmanager
def nothing_on_stdout() -> Iterator[None]:
    """While this lasts, whatever is written to standard output appears on stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
