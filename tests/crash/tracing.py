"""Run a job in a child process and stop it at any of its system calls that change a file: kill it there, or let the call fail.

Uses ptrace(2) of Linux through ctypes; numbers and register offsets are those of x86-64.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from crash.children import become, fork

_TRACEME, _POKEUSER, _DETACH, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 6, 17, 24, 0x4200, 0x420E
_TRACE_SYSTEM_CALLS, _KILL_WITH_TRACER = 1, 0x100000
_EXIT = 2
_NO_CALL = 0xFFFFFFFFFFFFFFFF
_CALL_REGISTER, _RESULT_REGISTER = 120, 80
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

# fmt: off
_CHANGING = {
    1: "write", 18: "pwrite64", 20: "writev", 296: "pwritev", 328: "pwritev2", 40: "sendfile", 326: "copy_file_range",
    74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate", 285: "fallocate",
    82: "rename", 264: "renameat", 316: "renameat2", 86: "link", 265: "linkat", 88: "symlink", 266: "symlinkat",
    83: "mkdir", 258: "mkdirat", 84: "rmdir", 87: "unlink", 263: "unlinkat", 133: "mknod", 259: "mknodat",
    90: "chmod", 91: "fchmod", 268: "fchmodat", 452: "fchmodat2",
    92: "chown", 93: "fchown", 94: "lchown", 260: "fchownat",
    132: "utime", 235: "utimes", 261: "futimesat", 280: "utimensat",
    188: "setxattr", 189: "lsetxattr", 190: "fsetxattr", 197: "removexattr", 198: "lremovexattr", 199: "fremovexattr",
    85: "creat",
}
# fmt: on
# Calls that open a file, and which of their arguments holds the flags.
_OPENING = {2: ("open", 1), 257: ("openat", 2)}

Call = str
Stop = Literal["entry", "exit", "over", "dead"]


@dataclass(frozen=True)
class Act:
    """What to do at the call number `at`: kill the process before or after it, or have it fail with `error`."""

    at: int
    do: Literal["kill before", "kill after", "fail"]
    error: int = 0

    def __str__(self) -> str:
        return f"{self.do} {self.at}" + (f" with {errno.errorcode[self.error]}" if self.error else "")


@dataclass(frozen=True)
class Trace:
    """The changing calls of a job in their order, whether it was killed, and what it raised."""

    calls: tuple[Call, ...]
    killed: bool
    said: str


def why_not() -> str | None:
    """Why processes cannot be traced here, or None when they can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"tracing is written for Linux on x86-64, this is {platform.system()} on {platform.machine()}"
    try:
        seen = run(lambda: os.close(os.open("/dev/null", os.O_WRONLY)))
    except OSError as error:
        return f"ptrace is not permitted here: {error.strerror}"
    return None if seen.calls == ("openat",) else f"ptrace does not see system calls here: {seen}"


def run(job: Callable[[], object], acts: Sequence[Act] = (), user: int | None = None) -> Trace:
    """Run `job` in a forked child, as `user` if one is given. Raises OSError when tracing is not permitted."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        _be_the_child(job, writing, user)
    os.close(writing)
    try:
        calls, killed = _follow(child, acts)
        with os.fdopen(reading, "rb", closefd=False) as stream:
            said = stream.read().decode("utf-8", "replace")
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if said.startswith("untraced: "):
        raise OSError(int(said[10:]), os.strerror(int(said[10:])))
    return Trace(tuple(calls), killed, said)


def _be_the_child(job: Callable[[], object], writing: int, user: int | None) -> None:
    """Do the job between two stops: only what happens between them is counted."""
    said = ""
    try:
        if user is not None:
            become(user)
        if _LIBC.ptrace(_TRACEME, 0, 0, 0):
            said = f"untraced: {ctypes.get_errno()}"
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - it is told to the parent
                said = f"{type(error).__name__}: {error}"
            os.kill(os.getpid(), signal.SIGSTOP)
        os.write(writing, said.encode("utf-8", "replace")[:60000])
    finally:
        os._exit(0)


def _follow(child: int, acts: Sequence[Act]) -> tuple[list[Call], bool]:
    calls: list[Call] = []
    name: Call | None = None
    if not os.WIFSTOPPED(os.waitpid(child, 0)[1]):
        return calls, False
    _ptrace(_SETOPTIONS, child, _TRACE_SYSTEM_CALLS | _KILL_WITH_TRACER)
    while True:
        stop, number, arguments = _next_stop(child)
        if stop in {"over", "dead"}:
            return calls, stop == "dead"
        if stop == "entry":
            name = _name_of(number, arguments)
            calls += [name] if name else []
        for act in acts:
            if name and len(calls) == act.at + 1:
                _do(act, child, stop)


def _do(act: Act, child: int, stop: Stop) -> None:
    match act.do, stop:
        case ("kill before", "entry") | ("kill after", "exit"):
            os.kill(child, signal.SIGKILL)
        case "fail", "entry":
            _ptrace(_POKEUSER, child, _NO_CALL, _CALL_REGISTER)
        case "fail", "exit":
            _ptrace(_POKEUSER, child, -act.error & _NO_CALL, _RESULT_REGISTER)


def _next_stop(child: int) -> tuple[Stop, int, tuple[int, ...]]:
    """Let the child go on until its next system call begins or returns, its job is over, or it is dead."""
    information = ctypes.create_string_buffer(96)
    passed_on = 0
    while True:
        with contextlib.suppress(ProcessLookupError):
            _ptrace(_SYSCALL, child, passed_on)
        status = os.waitpid(child, 0)[1]
        if not os.WIFSTOPPED(status):
            return "dead", 0, ()
        passed_on = os.WSTOPSIG(status)
        if passed_on == signal.SIGSTOP:
            _ptrace(_DETACH, child, 0)
            return "over", 0, ()
        if passed_on == signal.SIGTRAP | 0x80:
            passed_on = 0
            with contextlib.suppress(ProcessLookupError):
                _ptrace(_GET_SYSCALL_INFO, child, ctypes.addressof(information), len(information))
                if information.raw[0] == _EXIT:
                    return "exit", 0, ()
                number, *arguments = struct.unpack_from("7Q", information.raw, 24)
                return "entry", number, tuple(arguments)


def _name_of(number: int, arguments: tuple[int, ...]) -> Call | None:
    if number in _OPENING:
        name, flags = _OPENING[number]
        return name if arguments[flags] & _WRITES else None
    return _CHANGING.get(number)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    return libc


_LIBC = _libc()


def _ptrace(request: int, child: int, data: int, address: int = 0) -> None:
    if _LIBC.ptrace(request, child, address, data) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
