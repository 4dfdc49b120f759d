"""Runs a program with a time limit, and captures its output.

It ends everything that the program started, even outside its process group.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MARK = "VERL_DOCTOR_CHILD"
"""Set for every child and inherited by its descendants.

It proves that a process that left the group is ours to end.
"""

_MOST_READ = 16 * 1024 * 1024  # bytes of a child's output; it is killed when it writes more
_PIECE = 1024 * 1024  # bytes that are read at a time
# Seconds between two checks of a child where the system does not signal its end.
_PAUSE = 0.01
# How long to wait for killed processes. A process blocked in the kernel (a dead network share) may never end.
_DYING = 2.0
_SET_CHILD_SUBREAPER = 36  # prctl(2)
_GET_CHILD_SUBREAPER = 37


_running: dict[int, str] = {}  # children that are not yet reaped: number and value of MARK
_watchers: set[int] = set()  # the pipes to the processes that end these children if the doctor is killed
_ending = threading.Lock()


def _end_running() -> None:
    """End all children when a signal ends the main thread while other threads wait for them.

    No child starts after that.

    These threads forget a child as soon as it has ended.
    """
    _ending.acquire()
    for pid, token in tuple(_running.items()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _end_escaped(token, adopted=False)
    for pipe in tuple(_watchers):
        _dismiss(pipe)


def _forget_running() -> None:
    """After a fork, forget the children: they belong to the parent.

    A watcher must notice when that is killed.
    """
    global _ending  # noqa: PLW0603 - another thread may have held the lock during the fork
    _ending = threading.Lock()
    _running.clear()
    for pipe in _watchers:
        os.close(pipe)
    _watchers.clear()


atexit.register(_end_running)
os.register_at_fork(after_in_child=_forget_running)


@dataclass(frozen=True)
class Output:
    """The output of a child process. `code` is None when it ran out of time and was killed.

    A child that wrote too much was also killed, and is `flooded`: its `code` is the signal's, and its error
    output ends with a sentence about it.
    """

    code: int | None
    stdout: str
    stderr: str
    seconds: float
    flooded: bool = False

    @property
    def last_line(self) -> str:
        """The last line of its error output, for a one-line reason."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else "it printed nothing"


def run_group(argv: Sequence[str], environ: Mapping[str, str], timeout: float, folder: str) -> Output:
    """Run a child in `folder` until it ends, writes too much, or exceeds its `timeout` in seconds.

    Then end everything that it started.

    Raises OSError when it cannot be started.
    """
    begun = time.monotonic()
    streams: list[_Stream] = []
    in_time = False
    try:
        with started(argv, environ, folder) as process:
            streams += [_Stream(pipe) for pipe in (process.stdout, process.stderr) if pipe is not None]
            in_time = _read_until_end(process.pid, streams, begun + timeout)
    finally:
        for stream in streams:
            stream.close()
    code = process.returncode if in_time else None
    out, err = (stream.text for stream in streams)
    flooded = any(stream.is_too_long for stream in streams)
    if flooded:
        err += f"\nit was killed after {_MOST_READ // 1024 // 1024} MB of output"
    return Output(code, out, err, time.monotonic() - begun, flooded)


@contextlib.contextmanager
def started(
    argv: Sequence[str],
    environ: Mapping[str, str],
    folder: str,
    *,
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.PIPE,
    watched: bool = True,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child in `folder` with piped output. On exit it is killed with all that it started, and reaped.

    It misses a process that leaves the group and overwrites its environment, as Ray's workers do with their
    titles; `supervised_program` also ends these. If the doctor itself is killed, a watcher ends the child,
    unless it is not `watched` because it ends by itself. Raises OSError when it cannot be started.
    """
    _open_null()
    token = os.urandom(16).hex()
    with _orphans.adopted() as adopted, contextlib.ExitStack() as watch:
        # No context manager, which would wait without limit.
        with _ending:
            process = subprocess.Popen(
                list(argv),
                env={**environ, MARK: token},
                cwd=folder,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
            _running[process.pid] = token
        try:
            if watched:
                watch.enter_context(_watched(process.pid, token))
            yield process
        finally:
            with _ending:
                _running.pop(process.pid, None)
            # The child is not reaped yet, so its number, which is also the group's, is not reused.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DYING)
                _reap(-process.pid)
            _end_escaped(token, adopted=adopted)


def _open_null() -> None:
    """Raise an OSError that does not blame the program if there is no /dev/null.

    No child can be started without it.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDWR))
    except OSError as error:
        why = (
            error.strerror
            if error.errno in (errno.EMFILE, errno.ENFILE)
            else f"{os.devnull}: {error.strerror}"
        )
        raise OSError(errno.EAGAIN, why) from None


# Waits for a line, which comes when the child has been ended. Without one the doctor is dead: it ends the
# child's group, and all that the variable shows to descend from the child, until none is left: they may fork
# meanwhile. It leaves them if /proc numbers processes differently (`unshare --pid`). A shell starts in a
# fifteenth of the time that Python takes.
_WATCH = """
read -r line && exit
kill -9 "-$1"
grep -qsF "$2" "/proc/$$/cmdline" || exit
for pass in 1 2 3 4 5 6 7 8 9; do
    files=$(grep -lsF "$2" /proc/[0-9]*/environ)
    [ "$files" ] || exit
    for file in $files; do pid=${file#/proc/}; kill -9 "${pid%/environ}"; done
done
"""


@contextlib.contextmanager
def _watched(pid: int, token: str) -> Iterator[None]:
    """While this block runs, have this child ended if the doctor is killed.

    It does nothing where there is no shell.
    """
    reads, writes = os.pipe()
    watcher = None
    try:
        watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "verl-doctor-watcher", str(pid), f"{MARK}={token}"],
            env={"PATH": os.defpath},
            cwd="/",
            stdin=reads,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        pass
    finally:
        os.close(reads)
    _watchers.add(writes)
    try:
        yield
    finally:
        _watchers.discard(writes)
        _dismiss(writes)
        os.close(writes)
        if watcher is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                watcher.wait(_DYING)


def _dismiss(writes: int) -> None:
    """Let a watcher end: its child has ended."""
    with contextlib.suppress(OSError):
        os.write(writes, b"\n")


class _Stream:
    """A child's output, up to a limit.

    A grandchild may hold the other end open forever, so nothing waits for end of file.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._kept = bytearray()
        self.is_open = True
        os.set_blocking(pipe.fileno(), False)

    def fileno(self) -> int:
        """Return the pipe's number."""
        return self._pipe.fileno()

    def take(self) -> bool:
        """Read what is available, within the limit. Return whether there was anything."""
        try:
            piece = os.read(self.fileno(), _PIECE)
        except BlockingIOError:
            return False
        self.is_open = piece != b""
        self._kept += piece
        return self.is_open and not self.is_too_long

    def close(self) -> None:
        """Read what is left in the pipe, and close it."""
        while self.is_open and not self.is_too_long and self.take():
            pass
        self._pipe.close()

    @property
    def is_too_long(self) -> bool:
        """Whether the output exceeds the limit."""
        return len(self._kept) > _MOST_READ

    @property
    def text(self) -> str:
        """The captured output."""
        return bytes(self._kept[:_MOST_READ]).decode("utf-8", "replace")


def _read_until_end(pid: int, streams: Iterable[_Stream], deadline: float) -> bool:
    """Read a child's output until it ends or writes too much, without reaping it.

    Return whether that was in time.
    """
    with _end_of(pid) as end, selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ, stream)
        if end is not None:
            selector.register(end, selectors.EVENT_READ)
        while not has_ended(pid):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(left if end is not None else min(left, _PAUSE)):
                stream = key.data
                if stream is None:
                    continue
                stream.take()
                if stream.is_too_long:
                    return True
                if not stream.is_open:
                    selector.unregister(stream)
    return True


@contextlib.contextmanager
def _end_of(pid: int) -> Iterator[int | None]:
    """Yield a descriptor that becomes readable when this child ends; None if the system has none."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def has_ended(pid: int) -> bool:
    """Return whether this child has ended; it is not reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


class _Orphans:
    """Makes this process the parent of its children's orphans, while any child runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._before = 0
        self._can = False

    @contextlib.contextmanager
    def adopted(self) -> Iterator[bool]:
        """Yield whether this process adopts orphans. Blocks of several threads may overlap."""
        with self._lock:
            if self._running == 0:
                self._before = _is_subreaper()
                self._can = _become_subreaper(1)
            self._running += 1
        try:
            yield self._can
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0 and self._can:
                    _become_subreaper(self._before)


_orphans = _Orphans()


def _is_subreaper() -> int:
    import ctypes  # noqa: PLC0415 - a few milliseconds that only a child is worth

    output = ctypes.c_int(0)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_GET_CHILD_SUBREAPER, ctypes.byref(output), 0, 0, 0)
    return output.value


def _become_subreaper(value: int) -> bool:
    import ctypes  # noqa: PLC0415

    try:
        return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


def _end_escaped(token: str, *, adopted: bool) -> None:
    """Kill and reap the processes with this token that left the group.

    When a process is killed, its children become ours, so this repeats until none is left.
    """
    deadline = time.monotonic() + _DYING
    while time.monotonic() < deadline:
        killed = [pid for pid in _suspects(adopted=adopted) if _killed(pid, token)]
        if not killed:
            return
        for pid in killed:
            _reap(pid)


def _suspects(*, adopted: bool) -> Iterable[int]:
    """Return our own children if we adopt orphans, otherwise every process."""
    lists = list(Path("/proc/self/task").glob("*/children")) if adopted else []
    if lists:
        texts = []
        for path in lists:
            with contextlib.suppress(OSError):  # the thread has ended
                texts.append(path.read_text(encoding="ascii"))
        return [int(word) for text in texts for word in text.split()]
    try:
        if os.readlink("/proc/self") != str(os.getpid()):  # noqa: PTH115
            return []  # of another PID namespace, with other numbers
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []


def _killed(pid: int, token: str) -> bool:
    """Kill this process if its environment proves that it descends from our child. Return whether it did."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return False
    try:
        # Open the descriptor before reading: if the number is reused in between, the signal goes to the dead
        # process.
        if not _has_token(pid, token):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _has_token(pid: int, token: str) -> bool:
    return f"{MARK}={token}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _reap(number: int) -> None:
    """Reap a killed process, or a whole group when the number is negative, if it is our child."""
    deadline = time.monotonic() + _DYING
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            pid, _ = os.waitpid(number, os.WNOHANG)
            if pid == 0:
                time.sleep(0.002)
            elif number > 0:
                return
