"""The process table: the parent, start, owner and command of each process."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

_BOOTED = re.compile(r"^btime (\d+)$", re.MULTILINE)
_USER = re.compile(r"^Uid:\s+\d+\s+(\d+)", re.MULTILINE)  # the effective user is the second
_STATE, _PARENT, _STARTED = 3, 4, 22  # fields of /proc/PID/stat, counted in proc(5) from 1
_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of include/linux/proc_ns.h
_MEMORY = re.compile(r"^VmSize:", re.MULTILINE)
_TRIES, _MOMENT = 50, 0.002  # seconds
_NAME_ENDS = 3  # where the fields after the name begin


@dataclass(frozen=True)
class Row:
    """One process.

    `ticks` is when it started, in clock ticks since boot: together with the number it is its identity.

    `command` is its command line with blanks between the words, "" for an ended process or a kernel thread.
    `state` is the kernel's letter: R, S, D, T, t, Z... `mine` means that it runs as this user.
    """

    pid: int
    parent: int
    ticks: int
    state: str
    mine: bool
    command: str

    @property
    def title(self) -> str:
        """The first word of the command line: without arguments, so without secrets."""
        return self.command.partition(" ")[0]


def boot_time(machine: Machine) -> int | None:
    """Return when the machine started, in seconds since the epoch; None without a process table."""
    booted = _BOOTED.search(machine.read("/proc/stat") or "")
    return None if booted is None else int(booted[1])


def seconds_of(ticks: int) -> float:
    """Convert clock ticks to seconds."""
    return ticks / os.sysconf("SC_CLK_TCK")


def numbers(machine: Machine) -> list[int] | Unknown:
    """Return the numbers of all visible processes."""
    try:
        names = os.listdir(machine.at("/proc"))  # noqa: PTH208 - names alone
    except OSError as error:
        return Unknown(f"/proc cannot be read: {error.strerror}")
    return sorted(int(name) for name in names if name.isdecimal())


def own_number() -> int:
    """Return this process's number in /proc, which differs from os.getpid() if /proc is the host's."""
    try:
        return int(Path("/proc/self").readlink().name)
    except (OSError, ValueError):
        return os.getpid()


def commands(machine: Machine, read: Callable[[int, Machine], str] | None = None) -> dict[int, str]:
    """Return the command lines of all visible processes, by number, without kernel threads.

    They are `read` as by `command_of`; `settled_command` misses none, but takes twice as long.
    """
    listed = numbers(machine)
    every = () if isinstance(listed, Unknown) else listed
    found = ((pid, (read or command_of)(pid, machine)) for pid in every)
    return {pid: command for pid, command in found if command}


def open_files(pid: int, machine: Machine) -> Iterator[str]:
    """Yield the targets of a process's descriptors: a path, "socket:[4711]".

    Raises OSError when they may not be read.
    """
    folder = machine.at(f"/proc/{pid}/fd")
    for name in os.listdir(folder):  # noqa: PTH208 - names alone
        with contextlib.suppress(OSError):  # closed meanwhile
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - "socket:[4711]" is no path


def row_of(pid: int, machine: Machine, command: str | None = None) -> Row | None:
    """Return a process; None if it does not exist. `command` is its command line if already read."""
    user = _USER.search(machine.read(f"/proc/{pid}/status") or "")
    # The name, in brackets, may contain anything; the fields after it are numbers and one letter.
    fields = (machine.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    if user is None or len(fields) <= _STARTED - _NAME_ENDS:
        return None
    return Row(
        pid,
        parent=int(fields[_PARENT - _NAME_ENDS]),
        ticks=int(fields[_STARTED - _NAME_ENDS]),
        state=fields[_STATE - _NAME_ENDS],
        mine=int(user[1]) == os.geteuid(),
        command=command_of(pid, machine) if command is None else command,
    )


def below(pid: int, machine: Machine) -> frozenset[tuple[int, int]]:
    """Return the descendants of a process, by number and start (`Row.ticks`).

    Empty where the kernel does not list children (CONFIG_PROC_CHILDREN).
    """
    found: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for path in machine.at(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread has ended
                for word in path.read_text(encoding="ascii").split():
                    row = row_of(int(word), machine, command="")
                    if row is not None and row.pid not in found:
                        found[row.pid] = row.ticks
                        waiting.append(row.pid)
    return frozenset(found.items())


def threads(pid: int, machine: Machine) -> list[int]:
    """Return the numbers of a process's threads; none if it has ended."""
    try:
        return sorted(map(int, os.listdir(machine.at(f"/proc/{pid}/task"))))  # noqa: PTH208 - names alone
    except OSError:
        return []


def sees_all(machine: Machine) -> bool:
    """Return whether the table shows all processes of the machine.

    Not in a container, nor if /proc hides those of other users.
    """
    return _is_first_namespace(machine) and machine.read("/proc/1/stat") is not None


def hides_others(machine: Machine) -> bool:
    """Return whether the machine's /proc is mounted so that it hides other users' processes (`hidepid`)."""
    return _is_first_namespace(machine) and machine.read("/proc/1/stat") is None


def _is_first_namespace(machine: Machine) -> bool:
    try:
        return str(machine.at("/proc/self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return False


def is_first_of_machine(pid: int, machine: Machine) -> bool:
    """Return whether this is the machine's first process.

    It is never a job, although some virtual machines do not allow inspecting it.
    """
    return pid == 1 and sees_all(machine)


def command_of(pid: int, machine: Machine) -> str:
    """Return the command line of a process, with blanks between the words; "" if it has ended or has none."""
    # setproctitle(3) leaves the rest of the old command line as zero bytes.
    return (machine.read(f"/proc/{pid}/cmdline") or "").rstrip("\0 ").replace("\0", " ")


def settled_command(pid: int, machine: Machine) -> str:
    """Do the same, but wait for execve(2), during which a process has neither command line nor environment.

    This takes up to 20 ms after Popen has returned, on a busy machine. For callers to which a process without
    a command line is missing.
    """
    for _ in range(_TRIES):
        command = command_of(pid, machine)
        if command or not has_memory(machine.read(f"/proc/{pid}/status") or ""):
            break
        if machine.read(f"/proc/{pid}/environ") != "":
            break  # it may not be inspected, or has erased its command line
        time.sleep(_MOMENT)
    return command


def has_memory(status: str) -> bool:
    """Return whether a /proc/PID/status has memory: kernel threads and ended processes have none.

    It is the memory of the process.
    """
    return _MEMORY.search(status) is not None
