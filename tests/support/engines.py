"""Processes that look like engines in /proc: Python's program, machine code of a package, and a title.

They are forked and never replaced, so that hundreds of them cost little: a title is written where the arguments lie, as
setproctitle(3) does. The program that forks them must be started with `ROOM` as its last argument.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import subprocess
from collections.abc import Collection
from pathlib import Path

ROOM = "x" * 400
_DUMPABLE = 4  # PR_SET_DUMPABLE of prctl(2)
_VERSION, _PTRACE = 0x20080522, 19  # _LINUX_CAPABILITY_VERSION_3, CAP_SYS_PTRACE
_kept: list[object] = []


def code(folder: Path) -> Path:
    """Create a folder of packages with machine code to map: vllm, sgl_kernel, ray and torch."""
    for name, library in (
        ("vllm", "_C.abi3.so"),
        ("sgl_kernel", "common_ops.so"),
        ("ray", "_raylet.so"),
        ("torch", "libc.so"),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
        (folder / name / library).write_bytes(bytes(mmap.PAGESIZE))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    return folder


def load(folder: Path, *packages: str) -> None:
    """Map the machine code of these packages."""
    for package in packages:
        (library,) = (folder / package).glob("*.so")
        with library.open("rb") as file:
            protection = mmap.PROT_READ | mmap.PROT_EXEC
            _kept.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=protection))


def package_of(title: str) -> tuple[str, ...]:
    """Return the packages whose code a process with this title runs."""
    if title.startswith("ray"):
        return ("ray",)
    return ("sgl_kernel",) if title.startswith("sglang") else ("vllm",)


def call(title: str) -> None:
    """Give this process a title."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end
    assert len(title) < end - begin, "start the program with ROOM"
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, title.encode(), len(title))


def only(descriptors: Collection[int], output: str = os.devnull) -> None:
    """Close all others; input is the null device, output and errors go to a file."""
    for number, way in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        if number not in descriptors:
            opened = os.open(output if number else os.devnull, way)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
    last = 2
    for number in sorted({*descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[0]}):
        os.closerange(last + 1, number)
        last = max(last, number)


def visible() -> None:
    """Let this user inspect this process, even after it has dropped its privileges."""
    ctypes.CDLL(None).prctl(_DUMPABLE, 1, 0, 0, 0)


def without_ptrace() -> None:
    """Give up root's right to inspect processes that may do more, as in a container that shares the host's processes."""
    header, sets = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0
    for which in (0, 1, 2):  # effective, permitted, inheritable
        sets[which] &= ~(1 << _PTRACE)
    assert libc.capset(header, sets) == 0


def as_first_namespace(proc: str) -> None:
    """Take this process namespace for the machine's first one, and mount /proc anew if `proc` are options, not "-"."""
    from verl_doctor.toolkit.system import process_table

    process_table._FIRST_NAMESPACE = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - "pid:[1]" is no path
    if proc != "-":
        subprocess.run(["mount", "-t", "proc", "-o", proc, "none", "/proc"], check=True)


def wait() -> None:
    """Do nothing at all, until a signal ends this process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    while True:
        signal.pause()
