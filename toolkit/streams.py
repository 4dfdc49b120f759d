"""Standard output belongs to the report: what plugins and libraries print goes to stderr, and closed streams to nowhere."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

NOBODY_READS = 128 + signal.SIGPIPE
"""The exit code where the reader of stdout is gone: a shell's of a command that the signal ended, and no answer of ours."""


def open_closed_streams() -> None:
    """Give a process that was started with closed streams (`2>&-`) something to write to.

    Otherwise the next file that it opens would become its stderr.
    """
    for descriptor in (0, 1, 2):
        if not _is_open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
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
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


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
