"""Runs a program under `probes/supervisor.py`: no descendant outlives it, even a daemonised one, even when the doctor is killed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from subprocess import STDOUT, Popen

from verl_doctor.toolkit.probes import supervisor
from verl_doctor.toolkit.process.group import MARK, has_ended, started

_END_TIMEOUT = supervisor.KILL_TIMEOUT + 5.0  # seconds: the minder times out first
_PAUSE = 0.01


class NotStarted(OSError):  # noqa: N818 - an answer, not a defect
    """A program cannot be started; `filename` is its path."""


class Minded:
    """A running program. `minder` is its topmost process, `output` the pipe that it writes into."""

    def __init__(self, minder: Popen[bytes], channel: socket.socket) -> None:
        if minder.stdout is None:
            raise ValueError("a program that is listened to needs its output as a pipe")
        self.minder, self.output = minder, minder.stdout
        self._channel = channel

    def fileno(self) -> int:
        """Return what can be read when the program has ended."""
        return self._channel.fileno()

    def has_ended(self) -> bool:
        """Return whether the program has ended, or its minder was killed. What it left still runs."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            return bool(selector.select(0))

    @property
    def code(self) -> int | None:
        """Its exit code, a signal as a negative number; None before all is over."""
        return self.minder.returncode


@contextlib.contextmanager
def minded(argv: Sequence[str], environ: Mapping[str, str], folder: str) -> Iterator[Minded]:
    """Run a program in `folder`, with both outputs in one pipe. On exit it is killed with all that it started.

    Raises NotStarted when the program cannot be started, another OSError when its minder cannot.
    """
    command = [sys.executable, "-I", "-S", "-B", str(supervisor.__file__), MARK]
    ours, theirs = socket.socketpair()
    with ours, theirs, started(command, os.environ, folder, stdin=theirs.fileno(), stderr=STDOUT) as minder:
        theirs.close()
        order = {"argv": list(argv), "environ": dict(environ)}
        child = Minded(minder, ours)
        try:
            _start(ours, json.dumps(order).encode("ascii"), argv[0])
            yield child
        finally:
            child.output.close()
            ours.close()
            _wait_for(minder.pid)


def _start(channel: socket.socket, order: bytes, program: str) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        channel.sendall(order + b"\n")
    with channel.makefile("rb", buffering=0) as answer:  # not beyond the first line
        error = int(answer.readline() or errno.ECHILD)
    if error:
        raise NotStarted(error, os.strerror(error), program)


def _wait_for(pid: int) -> None:
    """Wait until it has ended, without reaping it: its number is needed."""
    deadline = time.monotonic() + _END_TIMEOUT
    while time.monotonic() < deadline and not has_ended(pid):
        time.sleep(_PAUSE)
