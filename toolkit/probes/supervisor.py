"""Starts a program and ends all its descendants, even detached ones: orphans become children of this process.

    python supervisor.py VARIABLE

VARIABLE is passed on unchanged. Standard input is a socket. It receives what to start, `{"argv": [...],
"environ": {...}}` in a line, and returns two numbers, a line each: 0 when the program runs, else the error
number (errno); and, when it has ended by itself, its status as from wait(2). When the other end closes, even
because its holder was killed, all descendants of this process are killed. Then this process ends as the
program did.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_SET_CHILD_SUBREAPER = 36  # prctl(2)
KILL_TIMEOUT = 10.0  # seconds for killed processes; a process blocked in the kernel may never end
_LOOK = 0.5  # seconds between two checks for ended orphans
_PARENT = 1  # among the fields after the name in /proc/PID/stat, counted from 0


def main() -> None:
    """Run everything; does not return."""
    (name,) = sys.argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(
                number, lambda *_: None
            )  # they are meant for the program, which would inherit SIG_IGN
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    channel = socket.socket(fileno=os.dup(0))
    with channel.makefile("rb") as order:
        wanted = json.loads(order.readline())
    try:
        program = subprocess.Popen(
            wanted["argv"],
            env={**wanted["environ"], name: os.environ[name]},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # some programs kill their whole process group
        )
    except OSError as error:
        _report(channel, error.errno or errno.EIO)
        os._exit(1)
    os.close(1)  # readers of the output must see where the program's output ends
    os.close(2)
    _report(channel, 0)
    status = _watch(program.pid, channel)
    if status is None:
        with contextlib.suppress(OSError):
            os.killpg(program.pid, signal.SIGKILL)
    _end_all()
    _end_as(status or 0)


def _report(channel: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the other end is closed
        channel.sendall(b"%d\n" % number)


def _watch(program: int, channel: socket.socket) -> int | None:
    """Report when the program ends, and wait until the other end closes.

    Return its status, None if it still runs.
    """
    status = None
    with contextlib.ExitStack() as stack:
        waited = [channel.fileno()]
        with contextlib.suppress(AttributeError, OSError):
            end = os.pidfd_open(program)
            stack.callback(os.close, end)
            waited.append(end)
        while channel.fileno() not in select.select(waited, [], [], _LOOK)[0]:
            for pid, how in _ended():
                if pid == program:
                    status, waited = how, waited[:1]
                    _report(channel, how)
    return status


def _ended() -> Iterator[tuple[int, int]]:
    """Yield children that have ended, and how."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, status


def _end_all() -> None:
    """Kill children until there are none: children of a killed child become ours."""
    deadline = time.monotonic() + KILL_TIMEOUT
    while time.monotonic() < deadline and (children := _children()):
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        list(_ended())


def _children() -> list[int]:
    """Return child numbers; none can have been reused, as the children are not reaped."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_bytes().rpartition(b")")[2].split()
            if int(fields[_PARENT]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
