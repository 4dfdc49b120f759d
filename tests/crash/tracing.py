"""Run a job in a child process and stop it at any of its system calls that change a file: kill it there, or let the call fail.

Uses ptrace(2) and seccomp(2) of Linux through ctypes; numbers and register offsets are those of x86-64. A filter in the kernel picks
the calls at which the child stops: a job that looks at all processes makes 40,000 others. Without the filter it stops at every call.
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

_TRACEME, _POKEUSER, _CONTINUE, _DETACH, _SYSCALL = 0, 6, 7, 17, 24
_SETOPTIONS, _GET_SYSCALL_INFO = 0x4200, 0x420E
_TRACE_SYSTEM_CALLS, _TRACE_FILTERED, _KILL_WITH_TRACER = 1, 0x80, 0x100000
# Statuses of a stop at any call, and at one that the filter picked.
_AT_CALL = (signal.SIGTRAP | 0x80, 7 << 8 | signal.SIGTRAP)
_EXIT = 2
_SET_FILTER, _SET_NO_NEW_PRIVILEGES = 22, 38  # prctl(2)
_NO_CALL = 0xFFFFFFFFFFFFFFFF
_CALL_REGISTER, _RESULT_REGISTER = 120, 80
_WRITE = 1
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


def run(
    job: Callable[[], object], acts: Sequence[Act] = (), user: int | None = None, *, filtered: bool = True
) -> Trace:
    """Run `job` in a forked child, as `user` if one is given. Raises OSError when tracing is not permitted.

    A job that starts programs must not be `filtered`: the filter would hold in them too, and calls fail where nobody traces.
    """
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        _be_the_child(job, writing, user, filtered=filtered)
    os.close(writing)
    try:
        calls, killed = _follow(child, acts, filtered=filtered)
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


def _be_the_child(job: Callable[[], object], writing: int, user: int | None, *, filtered: bool) -> None:
    """Do the job between two stops: only what happens between them is counted."""
    said = ""
    try:
        if user is not None:
            become(user)
        if _LIBC.ptrace(_TRACEME, 0, 0, 0):
            said = f"untraced: {ctypes.get_errno()}"
        elif filtered and (error_number := _set_filter(writing)):
            said = f"untraced: {error_number}"
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


def _follow(child: int, acts: Sequence[Act], *, filtered: bool) -> tuple[list[Call], bool]:
    calls: list[Call] = []
    if not os.WIFSTOPPED(os.waitpid(child, 0)[1]):
        return calls, False
    _ptrace(_SETOPTIONS, child, _TRACE_SYSTEM_CALLS | _TRACE_FILTERED | _KILL_WITH_TRACER)
    stop: Stop = "exit"
    while True:
        due = [act for act in acts if len(calls) == act.at + 1] if stop == "entry" else []
        stop, name = _next_stop(child, to_exit=bool(due) or not filtered)
        if stop in {"over", "dead"}:
            return calls, stop == "dead"
        if stop == "entry":
            calls.append(name)
            due = [act for act in acts if len(calls) == act.at + 1]
        for act in due:
            _do(act, child, stop)


def _do(act: Act, child: int, stop: Stop) -> None:
    match act.do, stop:
        case ("kill before", "entry") | ("kill after", "exit"):
            os.kill(child, signal.SIGKILL)
        case "fail", "entry":
            _ptrace(_POKEUSER, child, _NO_CALL, _CALL_REGISTER)
        case "fail", "exit":
            _ptrace(_POKEUSER, child, -act.error & _NO_CALL, _RESULT_REGISTER)


def _next_stop(child: int, *, to_exit: bool) -> tuple[Stop, Call]:
    """Let the child go on until a changing call begins, the one at which it is returns, its job is over, or it is dead."""
    information = ctypes.create_string_buffer(96)
    passed_on = 0
    while True:
        with contextlib.suppress(ProcessLookupError):
            _ptrace(_SYSCALL if to_exit else _CONTINUE, child, passed_on)
        status = os.waitpid(child, 0)[1]
        if not os.WIFSTOPPED(status):
            return "dead", ""
        passed_on = os.WSTOPSIG(status)
        if passed_on == signal.SIGSTOP:
            _ptrace(_DETACH, child, 0)
            return "over", ""
        if status >> 8 in _AT_CALL:
            passed_on = 0
            with contextlib.suppress(ProcessLookupError):
                _ptrace(_GET_SYSCALL_INFO, child, ctypes.addressof(information), len(information))
                if information.raw[0] == _EXIT:
                    return "exit", ""
                number, *arguments = struct.unpack_from("7Q", information.raw, 24)
                if name := _name_of(number, arguments):
                    return "entry", name


def _name_of(number: int, arguments: Sequence[int]) -> Call | None:
    if number in _OPENING:
        name, flags = _OPENING[number]
        return name if arguments[flags] & _WRITES else None
    return _CHANGING.get(number)


def _filter(free: int) -> bytes:
    """Return a program of BPF that stops calls in `_CHANGING`, but `write` to the descriptor `free`, and those that open a file to write."""
    load, equal, has, give = 0x20, 0x15, 0x45, 0x06  # BPF_LD+W+ABS, BPF_JMP+JEQ+K, BPF_JMP+JSET+K, BPF_RET+K
    trace, allow = 0x7FF00000, 0x7FFF0000  # SECCOMP_RET_TRACE, SECCOMP_RET_ALLOW
    program = [(load, 0, 0, 0), (equal, 0, 4, _WRITE), (load, 0, 0, 16), (equal, 0, 1, free)]
    program += [(give, 0, 0, allow), (give, 0, 0, trace)]
    for number in _CHANGING:
        program += [(equal, 0, 1, number), (give, 0, 0, trace)]
    for number, (_, argument) in _OPENING.items():
        program += [(equal, 0, 4, number), (load, 0, 0, 16 + 8 * argument), (has, 0, 1, _WRITES)]
        program += [(give, 0, 0, trace), (give, 0, 0, allow)]
    program.append((give, 0, 0, allow))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _set_filter(free: int) -> int:
    """Return 0, or the number of the error."""
    text = _filter(free)
    instructions = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("@HP", len(text) // 8, ctypes.addressof(instructions))
    failed = _LIBC.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or _LIBC.prctl(_SET_FILTER, 2, program, 0, 0)
    return ctypes.get_errno() if failed else 0


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
