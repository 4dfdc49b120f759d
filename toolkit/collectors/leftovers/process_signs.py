"""Finds running processes that use a file: with it open, or named in their command line or environment.

Names are compared, not paths: in another container the same folder has other paths. Files that no path
reaches any more, as after an unmount, are matched by device and inode. All threads are searched: each may
have its own folder and descriptors.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.processes.processes import role_of
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import file_system_of, is_overlay, overlay_layers
from verl_doctor.toolkit.system.process_life import RING, RING_TARGET
from verl_doctor.toolkit.system.process_table import (
    Row,
    boot_time,
    has_memory,
    hides_others,
    is_first_of_machine,
    numbers,
    own_number,
    row_of,
    seconds_of,
    sees_all,
    settled_command,
)
from verl_doctor.toolkit.system.process_tasks import steadily, views
from verl_doctor.toolkit.system.unix_sockets import unix_diagnoses, unix_sockets
from verl_doctor.toolkit.text import without_middle

_WORD = re.compile(r"[\w.-]+", re.ASCII)
_BETWEEN_WORDS = bytes(code if _WORD.fullmatch(chr(code)) else ord(" ") for code in range(256))
_NODE = re.compile(r"--node_id=[0-9a-f]{16,}")
_TRACKER = re.compile(r"\S*python\S* (?:-\S+ )*-c from multiprocessing\.resource_tracker import .*")
_NUMBERS = re.compile(r"^NSpid:\s+(.*)$", re.MULTILINE)
_ENDED = ("Z", "X")
_LONGEST = 60
_WHERE = re.compile(r"^((?:\S+ ){4})\S+")  # of a line of /proc/PID/mountinfo
_INODE = re.compile(r"^ino:\s*(\d+)$", re.MULTILINE)
_MOUNT = re.compile(r"^mnt_id:\s*(\d+)$", re.MULTILINE)
_IN_FLIGHT = re.compile(r"^scm_fds:\s*(\d+)$", re.MULTILINE)
# Layers that container runtimes name relative to their own folder when there are many.
_OF_CONTAINERS = re.compile(
    r"(?:\d+/fs|l/[A-Z0-9]{26}|(?:[\w.-]+/)?[0-9a-f]{64}(?:-init)?/(?:diff|fs|work|merged))"
)
_WATCHED = re.compile(r"\bino:([0-9a-f]+)")  # of inotify and fanotify


@dataclass(frozen=True)
class Use:
    """One process that uses a name: "has it open", "has it mapped", "works in it", "names it..."."""

    pid: int
    title: str
    how: str

    def __str__(self) -> str:
        return f"{self.title or 'a process'} (process {self.pid}) {self.how}"


@dataclass(frozen=True)
class Signs:
    """The results for all processes at one moment.

    `uses` are by name. `started` holds the start times, in seconds since the epoch, of the processes with a
    given number in any namespace. `closed` are processes that may not be inspected, `nodeless` raylets that
    do not report their node, `in_flight` the places where a descriptor, which may refer to anything, is being
    passed between processes. `trackers` manage this user's named shared memory, including what no process has
    open: each with its start time. `all_seen`: no process of this machine can be invisible here; `hidden`:
    /proc hides other users' processes.
    """

    uses: Mapping[str, tuple[Use, ...]] = field(default_factory=dict)
    started: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    closed: tuple[Use, ...] = ()
    nodeless: tuple[Use, ...] = ()
    in_flight: tuple[str, ...] = ()
    trackers: tuple[tuple[Use, float], ...] = ()
    all_seen: bool = False
    hidden: bool = False

    def of(self, *names: str) -> tuple[Use, ...]:
        """Return the processes that use any of these names."""
        return tuple({use.pid: use for name in reversed(names) for use in self.uses.get(name, ())}.values())


def numbered(device: int, inode: int) -> str:
    """Return the name of a file by its numbers, as in `Signs.uses`."""
    return f"{device}:{inode}"


def signs_of(
    names: Collection[str], machine: Machine, inodes: Collection[tuple[int, int]] = frozenset()
) -> Signs:
    """Search all processes except this one.

    `names` are words of letters, digits, "_", "." and "-", such a word followed by ":" and a number, or
    results of `mapped_name`. `inodes` are devices and inodes of files, which are found under their `numbered`
    names.
    """
    search = _Search(machine, _sockets(machine), frozenset(inodes))
    wanted = _Names(names)
    own = own_number()
    uses: dict[str, list[Use]] = defaultdict(list)
    started: dict[int, list[float]] = defaultdict(list)
    closed, nodeless, trackers = [], [], []
    booted = boot_time(machine) or 0
    listed = numbers(machine)

    def count(name: str, use: Use) -> None:
        if not any(known.pid == use.pid for known in uses[name]):
            uses[name].append(use)

    # Leave out the mount points: only what is mounted counts, and the folders that it is made of.
    here = "\n".join(_WHERE.sub(r"\1", line) for line in search.mounts("self").splitlines())
    for name in wanted.within(here):
        count(name, Use(own, "this machine", "has it mounted elsewhere"))
    for how, device, inode in search.layers_here():
        count(numbered(device, inode), Use(own, "this machine", how))
    for pid in () if isinstance(listed, Unknown) else listed:
        row = row_of(pid, machine, settled_command(pid, machine))
        if row is None or _is_dead(row, machine):
            continue
        since = booted + seconds_of(row.ticks)
        for number in _numbers_of(pid, machine):
            started[number].append(since)
        if pid == own:
            continue
        title = without_middle(row.title, _LONGEST) or "a process"
        looked = search.at(pid)
        if looked is None and not is_first_of_machine(pid, machine):
            closed.append(Use(pid, title, "may not be looked into"))
        if role_of(row.command) == "raylet" and not _NODE.search(row.command):
            nodeless.append(Use(pid, title, ", which does not report its node"))
        if row.mine and _TRACKER.match(row.command):
            trackers.append((Use(pid, title, "may track it for its job"), since))
        for how, text in (("names it in its command line", row.command), *(looked.texts if looked else ())):
            for name in wanted.within(text) if text else ():
                count(name, Use(pid, title, how))
        for how, device, inode in looked.numbers if looked else ():
            count(numbered(device, inode), Use(pid, title, how))
    return Signs(
        {name: tuple(found) for name, found in uses.items()},
        {number: tuple(found) for number, found in started.items()},
        tuple(closed),
        tuple(nodeless),
        tuple(search.in_flight()),
        tuple(trackers),
        sees_all(machine),
        hides_others(machine),
    )


def _numbers_of(pid: int, machine: Machine) -> set[int]:
    """Return its numbers, here and in nested namespaces; empty for a kernel thread."""
    status = machine.read(f"/proc/{pid}/status") or ""
    inner = _NUMBERS.search(status)
    return {pid, *map(int, inner[1].split() if inner else ())} if has_memory(status) else set()


def _is_dead(row: Row, machine: Machine) -> bool:
    """Return whether it has ended and is not yet reaped.

    Other threads may run on after the first one has ended.
    """
    if row.state not in _ENDED:
        return False
    try:
        return len(os.listdir(machine.at(f"/proc/{row.pid}/task"))) <= 1  # noqa: PTH208 - names alone
    except OSError:
        return True


def mapped_name(device: int, inode: int) -> str:
    """Return the name under which a file is mapped.

    A semaphore is created under another name, which is then removed (sem_open(3)).
    """
    return f" {os.major(device):02x}:{os.minor(device):02x} {inode} "


class _Names:
    """Names to find in texts of any length, at the same cost for thousands as for one."""

    def __init__(self, names: Collection[str]) -> None:
        self._by_word: dict[bytes, list[str]] = defaultdict(list)
        for name in names:
            self._by_word[_WORD.findall(name)[-1].encode("ascii")].append(name)

    def within(self, text: str) -> list[str]:
        """Return the names found in a text: as whole words, or as substrings if they are not words."""
        words = set(text.encode("utf-8", "replace").translate(_BETWEEN_WORDS).split())
        found = (name for word in words & self._by_word.keys() for name in self._by_word[word])
        return [name for name in found if _WORD.fullmatch(name) or name in text]


def _sockets(machine: Machine) -> dict[str, str]:
    """Return the paths of bound sockets, by the link text of their descriptors."""
    return {
        f"socket:[{unix_socket.inode}]": unix_socket.path
        for unix_socket in unix_sockets(machine)
        if unix_socket.path.startswith("/")
    }


@dataclass(frozen=True)
class _Uses:
    """What one process uses: texts, and devices and inodes, each with how it uses them."""

    texts: tuple[tuple[str, str], ...] = ()
    numbers: tuple[tuple[str, int, int], ...] = ()


class _Search:
    """A search through many processes. Collects descriptors in transit between them."""

    def __init__(
        self, machine: Machine, sockets: Mapping[str, str], inodes: frozenset[tuple[int, int]]
    ) -> None:
        self._machine, self._sockets, self._inodes = machine, sockets, inodes
        self._numbers = {inode for _, inode in inodes}
        self._mounts: set[str] = set()
        self._mount_numbers: set[str] = set()
        self._unmounted: list[tuple[str, int]] = []
        self._held: set[int] = set()
        self._waiting: list[str] = []

    def at(self, pid: int) -> _Uses | None:
        """Return what a process uses; None if it may not be inspected. The first match is reported."""
        try:
            return steadily(pid, self._machine, lambda: self._look(pid))
        except FileNotFoundError:
            return _Uses()
        except OSError:
            return None

    def _look(self, pid: int) -> _Uses:
        texts: list[tuple[str, str]] = []
        found: list[tuple[str, int, int]] = []
        folders = views(pid, self._machine)
        rings: set[str] = set()
        mounted = [(folder, self.mounts(folder.removeprefix("/proc/"))) for folder in folders]
        for folder in folders:
            links = self._links(folder)
            rings.update(self._rings(folder, links))
            texts += [
                ("has it open", "\n".join(links.values())),
                ("listens at it", "\n".join(self._sockets.get(link, "") for link in links.values())),
                ("works in it", _link(self._machine, f"{folder}/cwd")),
                ("has it as its root", _link(self._machine, f"{folder}/root")),
            ]
            for name, link in links.items():
                self._descriptor(folder, name, link, pid, texts, found)
            if self._inodes:
                found += self._places(folder, pid)
        main = folders[0] if folders else f"/proc/{pid}"
        mapped = self._machine.read(f"{main}/maps") or ""
        if any(inode not in rings for inode in RING.findall(mapped)):
            self._waiting.append(f"process {pid} has an io_uring without a descriptor, which may hold it")
        texts += [
            ("has it mapped", mapped),
            ("names it in its environment", self._machine.read(f"{main}/environ") or ""),
        ]
        for folder, mounts in mounted:
            texts.append(("is in a mount namespace where it is mounted", mounts))
            found += self._layers(folder, mounts) if self._inodes else ()
        return _Uses(tuple(texts), tuple(found))

    def layers_here(self) -> Iterator[tuple[str, int, int]]:
        """Yield the same for the overlays of this process's own namespace."""
        return self._layers("/proc/self", self._machine.read("/proc/self/mountinfo") or "")

    def _layers(self, folder: str, mounts: str) -> Iterator[tuple[str, int, int]]:
        """Yield layers of a namespace's overlays among the files searched, whatever the mount calls them."""
        for layer in overlay_layers(mounts):
            if layer.startswith("/"):
                yield from self._same("has it in an overlay", f"{folder}/root{layer}")
            elif not _OF_CONTAINERS.fullmatch(layer):
                self._waiting.append(f"an overlay has the layer {layer}, which may be it")

    def _rings(self, folder: str, links: Mapping[str, str]) -> Iterator[str]:
        for name, link in links.items():
            if link == RING_TARGET:
                yield from _INODE.findall(self._machine.read(f"{folder}/fdinfo/{name}") or "")

    def mounts(self, process: str) -> str:
        """Return the mounts seen by a process or thread, "" if already known.

        A folder may have another name there.
        """
        namespace = _link(self._machine, f"/proc/{process}/ns/mnt")
        if namespace in self._mounts:
            return ""
        self._mounts.add(namespace)
        mounts = self._machine.read(f"/proc/{process}/mountinfo") or ""
        self._mount_numbers.update(line.partition(" ")[0] for line in mounts.splitlines())
        return mounts

    def in_flight(self) -> Iterator[str]:
        """Yield where descriptors are in transit.

        They are in messages queued at visible sockets, or at sockets without a visible holder.
        """
        yield from self._waiting
        for mount, pid in self._unmounted:
            if mount not in self._mount_numbers:
                yield f"process {pid} uses an overlay that is mounted nowhere, which may have it as a layer"
        if not self._inodes:
            return
        own = self._machine.at(f"/proc/{own_number()}/fd")
        with contextlib.suppress(OSError):
            for link in own.iterdir():
                with contextlib.suppress(OSError):
                    self._hold(os.readlink(link))  # noqa: PTH115 - "socket:[1]" is no path
        for unix_diagnosis in unix_diagnoses() or ():
            if unix_diagnosis.clients or (unix_diagnosis.waiting and unix_diagnosis.inode not in self._held):
                yield (
                    "a message waits at a socket that no process has accepted or holds, and may contain a "
                    "descriptor of it"
                )
                return

    def _links(self, folder: str) -> dict[str, str]:
        links = {}
        place = self._machine.at(f"{folder}/fd")
        for name in os.listdir(place):  # noqa: PTH208 - names alone
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links[name] = os.readlink(place / name)  # noqa: PTH115 - "socket:[4711]" is no path
                self._hold(links[name])
        return links

    def _hold(self, link: str) -> None:
        if link.startswith("socket:["):
            self._held.add(int(link[len("socket:[") : -1]))

    def _descriptor(
        self,
        folder: str,
        name: str,
        link: str,
        pid: int,
        texts: list[tuple[str, str]],
        found: list[tuple[str, int, int]],
    ) -> None:
        """Inspect one descriptor, if more than its name matters."""
        if link == RING_TARGET:
            texts.append(("has it open (io_uring)", self._machine.read(f"{folder}/fdinfo/{name}") or ""))
        if not self._inodes or not link.startswith(("/", "socket:", "anon_inode:")):
            return
        info = self._machine.read(f"{folder}/fdinfo/{name}") or ""
        if link.startswith("/"):
            self._note_mount(info, f"{folder}/fd/{name}", pid)
            number = _INODE.search(info)
            if number is None or int(number[1]) in self._numbers:
                found += self._same("has it open", f"{folder}/fd/{name}")
        elif link.startswith("socket:"):
            waiting = _IN_FLIGHT.search(info)
            if waiting and int(waiting[1]):
                self._waiting.append(f"a descriptor is being passed to process {pid}, and may refer to it")
        else:
            watched = {int(number, 16) for number in _WATCHED.findall(info)}
            found += [("watches it", device, inode) for device, inode in self._inodes if inode in watched]

    def _note_mount(self, info: str, path: str, pid: int) -> None:
        """Note a file of an overlay whose mount is in no list yet. `info` is that of a descriptor of it."""
        mount = _MOUNT.search(info)
        if mount and mount[1] not in self._mount_numbers and is_overlay(str(self._machine.at(path))):
            self._unmounted.append((mount[1], pid))

    def _places(self, folder: str, pid: int) -> Iterator[tuple[str, int, int]]:
        for name in ("cwd", "root"):
            with contextlib.suppress(OSError):
                place = os.open(self._machine.at(f"{folder}/{name}"), os.O_PATH | os.O_CLOEXEC)
                try:
                    info = self._machine.read(f"/proc/self/fdinfo/{place}") or ""
                finally:
                    os.close(place)
                self._note_mount(info, f"{folder}/{name}", pid)
        yield from self._same("works in it", f"{folder}/cwd")
        yield from self._same("has it as its root", f"{folder}/root")

    def _same(self, how: str, path: str) -> Iterator[tuple[str, int, int]]:
        """Yield the file that a link of /proc refers to, if it is one of those searched.

        Avoids remote file systems, which may hang.
        """
        place = file_system_of(self._machine, _link(self._machine, path), follow=False)
        if place is not None and place.shared:
            return
        with contextlib.suppress(OSError):
            about = self._machine.at(path).stat()
            if (about.st_dev, about.st_ino) in self._inodes:
                yield how, about.st_dev, about.st_ino


def _link(machine: Machine, path: str) -> str:
    try:
        return os.readlink(machine.at(path))  # noqa: PTH115 - a name such as "socket:[1]" is no path
    except OSError:
        return ""
