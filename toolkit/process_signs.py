"""Which running processes have to do with something that has a name: who has it open, or names it in what it was started with.

Names alone are compared, not paths: the same folder has other paths in another container.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.fact_processes import role_of
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process_table import (
    Row,
    boot_time,
    has_memory,
    numbers,
    open_files,
    own_number,
    row_of,
    seconds_of,
    sees_all,
    settled_command,
)
from verl_doctor.toolkit.unix_sockets import unix_sockets

_WORD = re.compile(r"[\w.-]+", re.ASCII)
_BETWEEN_WORDS = bytes(code if _WORD.fullmatch(chr(code)) else ord(" ") for code in range(256))
_NODE = re.compile(r"--node_id=[0-9a-f]{16,}")
_TRACKER = re.compile(r"\S*python\S* (?:-\S+ )*-c from multiprocessing\.resource_tracker import .*")
_NUMBERS = re.compile(r"^NSpid:\s+(.*)$", re.MULTILINE)
_ENDED = ("Z", "X")
_LONGEST = 60


@dataclass(frozen=True)
class Use:
    """One process that has to do with a name: "has it open", "has it mapped", "works in it", "names it..."."""

    pid: int
    title: str
    how: str

    def __str__(self) -> str:
        return f"{self.title or 'a process'} (process {self.pid}) {self.how}"


@dataclass(frozen=True)
class Signs:
    """What all processes show at one moment.

    `uses` are by name. `started` are the times, in seconds since the epoch, at which the processes that have a number in some
    namespace started. `closed` are processes of jobs of this user that may not be looked into, `nodeless` raylets that do not
    tell which node they are. `trackers` keep count of this user's named shared memory, also of what nobody has open: who, and when it
    started. `all_seen` says that no process of this machine can be outside of what is seen here.
    """

    uses: Mapping[str, tuple[Use, ...]] = field(default_factory=dict)
    started: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    closed: tuple[Use, ...] = ()
    nodeless: tuple[Use, ...] = ()
    trackers: tuple[tuple[Use, float], ...] = ()
    all_seen: bool = False

    def of(self, *names: str) -> tuple[Use, ...]:
        """Who has to do with any of these names."""
        return tuple({use.pid: use for name in reversed(names) for use in self.uses.get(name, ())}.values())


def signs_of(names: Collection[str], machine: Machine) -> Signs:
    """Look through all processes but this one.

    `names` are words of letters, digits, "_", "." and "-", or such a word, ":" and a number, or what `mapped_name` gives.
    """
    sockets = _sockets(machine)
    wanted = _Names(names)
    own = own_number()
    uses: dict[str, list[Use]] = defaultdict(list)
    started: dict[int, list[float]] = defaultdict(list)
    closed, nodeless, trackers, mounts = [], [], [], set[str]()
    booted = boot_time(machine) or 0
    listed = numbers(machine)
    for pid in () if isinstance(listed, Unknown) else listed:
        row = row_of(pid, machine, settled_command(pid, machine))
        if row is None or _is_dead(row, machine):
            continue
        since = booted + seconds_of(row.ticks)
        for number in _numbers_of(pid, machine):
            started[number].append(since)
        if pid == own:
            continue
        title = row.title[-_LONGEST:]
        looked = _look(pid, machine, sockets, mounts)
        if looked is None and row.mine and role_of(row.command):
            closed.append(Use(pid, title, "may not be looked into"))
        if role_of(row.command) == "raylet" and not _NODE.search(row.command):
            nodeless.append(Use(pid, title, ", which does not tell its node"))
        if row.mine and _TRACKER.match(row.command):
            trackers.append((Use(pid, title, "may keep count of it for its job"), since))
        for how, text in (("names it in its command line", row.command), *(looked or ())):
            for name in wanted.within(text) if text else ():
                if not any(use.pid == pid for use in uses[name]):
                    uses[name].append(Use(pid, title, how))
    return Signs(
        {name: tuple(found) for name, found in uses.items()},
        {number: tuple(found) for number, found in started.items()},
        tuple(closed),
        tuple(nodeless),
        tuple(trackers),
        sees_all(machine),
    )


def _numbers_of(pid: int, machine: Machine) -> set[int]:
    """Its numbers, here and in the namespaces within; none of a thread of the kernel's."""
    status = machine.read(f"/proc/{pid}/status") or ""
    inner = _NUMBERS.search(status)
    return {pid, *map(int, inner[1].split() if inner else ())} if has_memory(status) else set()


def _is_dead(row: Row, machine: Machine) -> bool:
    """Whether it has ended and waits for its parent to notice. Its other threads may go on when the first one has ended."""
    if row.state not in _ENDED:
        return False
    try:
        return len(os.listdir(machine.at(f"/proc/{row.pid}/task"))) <= 1  # noqa: PTH208 - names alone
    except OSError:
        return True


def mapped_name(device: int, inode: int) -> str:
    """What a file is called where it is mapped: a semaphore was made under another name, which has gone (sem_open(3))."""
    return f" {os.major(device):02x}:{os.minor(device):02x} {inode} "


class _Names:
    """Names to look for in texts of any length: thousands of names cost no more than one."""

    def __init__(self, names: Collection[str]) -> None:
        self._by_word: dict[bytes, list[str]] = defaultdict(list)
        for name in names:
            self._by_word[_WORD.findall(name)[-1].encode("ascii")].append(name)

    def within(self, text: str) -> list[str]:
        """Those that a text holds: as whole words, or as far as they are no words, as they are."""
        words = set(text.encode("utf-8", "replace").translate(_BETWEEN_WORDS).split())
        found = (name for word in words & self._by_word.keys() for name in self._by_word[word])
        return [name for name in found if _WORD.fullmatch(name) or name in text]


def _sockets(machine: Machine) -> dict[str, str]:
    """The paths of bound sockets, by what a descriptor of one is called."""
    return {f"socket:[{one.inode}]": one.path for one in unix_sockets(machine) if one.path.startswith("/")}


def _look(
    pid: int, machine: Machine, sockets: Mapping[str, str], mounts: set[str]
) -> list[tuple[str, str]] | None:
    """What a process uses, each with how; None when it may not be looked into. The first that fits is what is said.

    `mounts` are the namespaces of mounts that were looked at: a folder of this container may have another name in another.
    """
    try:
        links = list(open_files(pid, machine))
    except FileNotFoundError:
        return []
    except OSError:
        return None
    return [
        ("has it open", "\n".join(links)),
        ("listens at it", "\n".join(sockets.get(link, "") for link in links)),
        ("has it mapped", machine.read(f"/proc/{pid}/maps") or ""),
        ("works in it", _link(machine, f"/proc/{pid}/cwd")),
        ("has it as its root", _link(machine, f"/proc/{pid}/root")),
        ("names it in its environment", machine.read(f"/proc/{pid}/environ") or ""),
        ("lives where it is mounted", _mounts(pid, machine, mounts)),
    ]


def _mounts(pid: int, machine: Machine, known: set[str]) -> str:
    """What is mounted where a process lives, "" when that is known already."""
    namespace = _link(machine, f"/proc/{pid}/ns/mnt")
    if namespace in known:
        return ""
    known.add(namespace)
    return machine.read(f"/proc/{pid}/mountinfo") or ""


def _link(machine: Machine, path: str) -> str:
    try:
        return os.readlink(machine.at(path))  # noqa: PTH115 - a name such as "socket:[1]" is no path
    except OSError:
        return ""
