"""Candidates for leftover files of dead jobs.

They are everything with a matching name on this machine, with all its signs of life.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.host.spilling import Spilling
from verl_doctor.toolkit.collectors.leftovers.contents import Contents, contents_of
from verl_doctor.toolkit.collectors.leftovers.places import Place, places
from verl_doctor.toolkit.collectors.leftovers.process_signs import Signs, Use, mapped_name, numbered, signs_of
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.leftover import Kind
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import FileSystem, file_system_of, file_systems
from verl_doctor.toolkit.system.open_folder import reached
from verl_doctor.toolkit.system.tcp_probe import try_connection

Seen = Literal["all", "this user", "this namespace", "this machine"]
"""Which of the processes that can reach a file are visible.

They are all of them, only this user's, or only those of this container or of this machine.
"""
Maker = Literal["", "ended", "started later", "runs", "hidden"]
Answer = Literal["", "connected", "refused", "silence"]

_TYPES = {stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFSOCK: "socket", stat.S_IFLNK: "link"}
_ADDRESS = re.compile(r"(?P<host>[\w.-]+):(?P<port>\d{1,5})\s*")
_PORT_TIMEOUT = 0.5  # seconds for a port
_LAST_PORT = 65_535
_TRACKED = re.compile(r"psm_|sem\.mp-|verl_weights_")  # by multiprocessing/resource_tracker.py
_ROUNDING = 2.0  # seconds between the clocks of processes and of files


@dataclass(frozen=True)
class LeftFile:
    """One file or folder with the name of a leftover, and the signs of life that it shows.

    `type` is folder, file, socket, link or other; `owner` is a user's number, `mine` whether that is this
    user. `device`, `inode` and `changed` (nanoseconds) distinguish it from another of the same name. `size`
    is in bytes, None if it is in use; `latest` is the last change of anything in it, in seconds since the
    epoch.

    Signs of life: `uses` are the processes that use it; `used` is an entry that the kernel reports as in use
    by any process; `maker` is the state of the process `pid` in its name; `answer` is the reply from the
    address in it. Unknowns: `undetermined` entries have an unknown state; `seen` states which processes are
    seen of those that can reach it. Other contents: `foreign` files of other users, `mounted` folders,
    `closed` (unreadable) ones, and what a job has `written` there. Each is one entry, "" if there is none.
    """

    kind: Kind
    path: str
    type: str
    owner: int
    mine: bool
    device: int
    inode: int
    changed: int
    latest: float
    size: int | None = None
    files: int = 0
    sockets: int = 0
    uses: tuple[str, ...] = ()
    used: str = ""
    undetermined: str = ""
    pid: int = 0
    maker: Maker = ""
    node: str = ""
    address: str = ""
    answer: Answer = ""
    foreign: str = ""
    mounted: str = ""
    closed: str = ""
    written: str = ""
    seen: Seen = "all"
    lies_on: str = ""


@dataclass(frozen=True)
class LeftFiles:
    """All candidates, as seen at `now`, in seconds since the epoch.

    `processes`: all processes were searched too, which is skipped if the kernel reports every candidate as in
    use. `closed` are unreadable processes of this user's jobs; `nodeless` are raylets that do not report
    their node.
    """

    files: tuple[LeftFile, ...] = ()
    now: float = 0.0
    processes: bool = True
    closed: tuple[str, ...] = ()
    nodeless: tuple[str, ...] = ()
    in_flight: tuple[str, ...] = ()


@collector(timeout=60)
def left_files(
    machine: Machine,
    folders: Folders | Unknown,
    spilling: Spilling | Unknown,
) -> LeftFiles | Absent:
    """Search the folders in which Ray, verl, vLLM and their libraries keep temporary files."""
    known = () if isinstance(folders, Unknown) else folders.folders
    found = places(
        machine,
        ray=[folder.path for folder in known if folder.use == "Ray's sessions"],
        temporary=[folder.path for folder in known if folder.use == "temporary files"],
        spill=() if isinstance(spilling, Unknown) else (*spilling.paths, *spilling.further),
    )
    if not found:
        return Absent("there are no leftover files of jobs on this machine")
    return look(found, machine)


def look(found: Sequence[Place], machine: Machine) -> LeftFiles:
    """Inspect the candidates, and all processes unless the kernel reports every candidate as in use."""
    seen = [(place, *contents) for place in found if (contents := _contents(place, machine))]
    addresses = {place: _address_in(machine, place) for place in found if place.kind == "address file"}
    answers = {place: _answer(address) for place, address in addresses.items()}
    requested = any(
        about.st_uid == os.geteuid() and not contents.used and answers.get(place) != "connected"
        for place, about, contents in seen
    )
    names = {
        name
        for place, about, contents in seen
        for name in _words(place, about, contents, addresses.get(place, ""))
    }
    inodes = {number for place, _, contents in seen if place.kind != "socket" for number in contents.inodes}
    signs = signs_of(names, machine, inodes) if requested else Signs()
    mounts = tuple(file_systems(machine))
    return LeftFiles(
        tuple(
            _seen_at(
                place,
                about,
                contents,
                addresses.get(place, ""),
                answers.get(place, ""),
                machine,
                signs,
                mounts,
            )
            for place, about, contents in seen
        ),
        time.time(),
        requested,
        tuple(str(use) for use in signs.closed),
        tuple(str(use) for use in signs.nodeless),
        signs.in_flight,
    )


def _contents(place: Place, machine: Machine) -> tuple[os.stat_result, Contents] | None:
    """Return the state and contents of a candidate; None if it no longer exists."""
    try:
        with reached(str(machine.root), place.folder) as folder:
            about = os.stat(place.entry, dir_fd=folder, follow_symlinks=False)
            if place.kind == "socket" and not stat.S_ISSOCK(about.st_mode):
                return None  # a non-socket with such a name is something else
            mine = about.st_uid == os.geteuid()
            return about, contents_of(place.entry, folder, place.expected) if mine else Contents()
    except OSError:
        return None


def _seen_at(
    place: Place,
    about: os.stat_result,
    contents: Contents,
    address: str,
    answer: Answer,
    machine: Machine,
    signs: Signs,
    mounts: Sequence[FileSystem],
) -> LeftFile:
    latest = contents.latest / 10**9
    mount = file_system_of(machine, place.folder, mounts)
    return LeftFile(
        place.kind,
        place.path,
        _TYPES.get(stat.S_IFMT(about.st_mode), "other"),
        about.st_uid,
        mine=about.st_uid == os.geteuid(),
        device=about.st_dev,
        inode=about.st_ino,
        changed=about.st_ctime_ns,
        latest=latest,
        size=None if contents.used else contents.size,
        files=contents.files,
        sockets=contents.sockets,
        uses=tuple(map(str, _uses(place, about, contents, address, signs))),
        used=contents.used,
        undetermined=contents.undetermined,
        pid=place.pid,
        maker=_maker(place.pid, latest, machine, signs) if place.pid and not contents.used else "",
        node=place.node or min(contents.nodes, default=""),
        address=address,
        answer=answer,
        foreign=contents.foreign,
        mounted=contents.mounted or _mounted_below(place, machine, mounts),
        closed=contents.closed,
        written=contents.written or contents.strange,
        seen=_seen(mount, signs),
        lies_on=mount.kind if mount else "",
    )


def _mounted_below(place: Place, machine: Machine, mounts: Sequence[FileSystem]) -> str:
    """Return a file or folder in it on which something is mounted.

    For a file, its own stat does not show that.
    """
    above = os.path.realpath(machine.at(place.folder)) + "/"
    below = f"{above}{place.entry}/"
    paths = (mount.mounted_on for mount in mounts)
    return next((path.removeprefix(above) for path in paths if path.startswith(below)), "")


def _uses(
    place: Place, about: os.stat_result, contents: Contents, address: str, signs: Signs
) -> tuple[Use, ...]:
    """Return the processes that use it.

    A job's named memory may be open nowhere for a while; its tracker still removes it in the end.
    """
    counted = tuple(
        use
        for use, started in signs.trackers
        if _TRACKED.match(place.name) and started < contents.latest / 10**9 + _ROUNDING
    )
    inside = (numbered(*number) for number in contents.inodes) if place.kind != "socket" else ()
    return signs.of(*_words(place, about, contents, address), *inside) or counted


def _words(place: Place, about: os.stat_result, contents: Contents, address: str) -> tuple[str, ...]:
    """Return the words by which a process may refer to it.

    A raylet that has another path for it names at least its node.
    """
    mapped = mapped_name(about.st_dev, about.st_ino) if place.kind == "shared memory" else ""
    names = (place.name, place.entry, place.node, *sorted(contents.nodes), address, mapped)
    return tuple(filter(None, dict.fromkeys(names)))


def _maker(pid: int, latest: float, machine: Machine, signs: Signs) -> Maker:
    """Return the state of the process that a name holds.

    Numbers are reused; a process cannot have made anything before it started.
    """
    if started := signs.started.get(pid):
        return "started later" if all(time > latest + _ROUNDING for time in started) else "runs"
    if os.path.exists(machine.at(f"/proc/{pid}")):
        return "ended"  # not listed: a thread of a process or the kernel, or not yet reaped
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return "ended"
    except PermissionError:
        pass
    return "hidden"


def _seen(mount: FileSystem | None, signs: Signs) -> Seen:
    """Return which processes are seen.

    A mount, including a container's own layer, may be in use by processes not visible here.
    """
    if mount is None or mount.shared:
        return "this machine"
    if signs.all_seen:
        return "all"
    return "this user" if signs.hidden else "this namespace"


def _address_in(machine: Machine, place: Place) -> str:
    """Return the address in a file, "" if there is none."""
    try:
        with reached(str(machine.root), place.folder) as folder:
            descriptor = os.open(
                place.entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
            )
            with os.fdopen(descriptor, "rb") as file:
                found = _ADDRESS.fullmatch(file.read(200).decode("ascii", "replace"))
    except OSError:
        return ""
    return f"{found['host']}:{found['port']}" if found else ""


def _answer(address: str) -> Answer:
    if not address:
        return ""
    host, _, port = address.rpartition(":")
    reply = try_connection(host, int(port), _PORT_TIMEOUT).reply if int(port) <= _LAST_PORT else "silence"
    return reply if reply in ("connected", "refused") else "silence"
