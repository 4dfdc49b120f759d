"""Reserves stdout for the report: plugin and library output goes to stderr, closed streams to nowhere."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import stat
import sys
from collections.abc import Iterator

NO_READER = 128 + signal.SIGPIPE
"""The exit code after the reader of stdout is gone.

It is a shell's code for a command ended by the signal, and no result of ours.
"""


class CannotPrintError(Exception):
    """The output was lost: whatever was found, the command must not end as if it had been read."""


def open_closed_streams() -> None:
    """Replace the streams of a process that was started without them (`2>&-`).

    Otherwise the next file that it opens would become its stderr. Writing to a closed stdout still fails.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_RDWR)):
        if not _is_open(descriptor):
            os.open(os.devnull, flags)  # the lowest free number: this descriptor
    for descriptor in (1, 2):
        _let_it_wait(descriptor)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # as on stderr: `PYTHONIOENCODING=ascii` lacks letters of a path


def _let_it_wait(descriptor: int) -> None:
    """Make a stream wait for a slow reader if it was made non-blocking.

    Whoever started this process made it so; what does not fit would be lost.

    It is opened again, because the flag belongs to all who share it. Writing to a file never waits, and its
    place would be lost.
    """
    if os.get_blocking(descriptor) or stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    try:
        again = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # a socket, or there is no /proc
        os.set_blocking(descriptor, True)
        return
    os.dup2(again, descriptor)
    os.close(again)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def end_stdout() -> None:
    """End the output: what a plugin prints at exit goes to stderr.

    Raises OSError when stdout cannot be written.
    """
    sys.stdout.flush()
    os.dup2(2, 1)


def give_up_stdout() -> None:
    """After a failed write: discard what is still buffered, so that it does not fail again at exit."""
    _give_up(1)


def give_up_stderr() -> None:
    """Do the same for stderr: messages for people must not prevent output on stdout."""
    _give_up(2)


def _give_up(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextlib.contextmanager
def nothing_on_stdout() -> Iterator[None]:
    """Redirect standard output to stderr in this block."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
