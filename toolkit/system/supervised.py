"""Runs a program under `probes/supervisor.py`.

No descendant outlives it, even a daemonised one, even when the doctor is killed.
"""

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

_END_TIMEOUT = supervisor.KILL_TIMEOUT + 5.0  # seconds; the supervisor's own limit is shorter
_PAUSE = 0.01


class NotStarted(OSError):  # noqa: N818 - an answer, not a defect
    """A program cannot be started; `filename` is its path."""


class SupervisedProgram:
    """A running program. `supervisor` is the process that started it, `output` the pipe that it writes to."""

    def __init__(self, process: Popen[bytes], channel: socket.socket) -> None:
        if process.stdout is None:
            raise ValueError("the program's output must be a pipe")
        self.supervisor, self.output = process, process.stdout
        self._channel = channel

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the program has ended."""
        return self._channel.fileno()

    def has_ended(self) -> bool:
        """Return whether the program has ended or its supervisor was killed.

        Its descendants may still run.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            return bool(selector.select(0))

    @property
    def code(self) -> int | None:
        """Its exit code, a signal as a negative number; None while its supervisor runs."""
        return self.supervisor.returncode


@contextlib.contextmanager
def supervised_program(
    argv: Sequence[str], environ: Mapping[str, str], folder: str
) -> Iterator[SupervisedProgram]:
    """Run a program in `folder`, with stdout and stderr in one pipe.

    On exit, it is killed with all that it started.

    Raises NotStarted if the program cannot be started, another OSError if its supervisor cannot.
    """
    command = [sys.executable, "-I", "-S", "-B", str(supervisor.__file__), MARK]
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        started(command, os.environ, folder, stdin=theirs.fileno(), stderr=STDOUT, watched=False) as process,
    ):
        theirs.close()
        request = {"argv": list(argv), "environ": dict(environ)}
        child = SupervisedProgram(process, ours)
        try:
            _start(ours, json.dumps(request).encode("ascii"), argv[0])
            yield child
        finally:
            child.output.close()
            ours.close()
            _wait_for(process.pid)


def _start(channel: socket.socket, request: bytes, program: str) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        channel.sendall(request + b"\n")
    with channel.makefile("rb", buffering=0) as response:  # unbuffered: not beyond the first line
        error = int(response.readline() or errno.ECHILD)
    if error:
        raise NotStarted(error, os.strerror(error), program)


def _wait_for(pid: int) -> None:
    """Wait until it has ended, without reaping it, because its number is still needed."""
    deadline = time.monotonic() + _END_TIMEOUT
    while time.monotonic() < deadline and not has_ended(pid):
        time.sleep(_PAUSE)
