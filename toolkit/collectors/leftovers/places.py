"""The places where dead jobs leave files, and the names that identify them.

A name that matches nothing here is never a leftover.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.leftover import Kind
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.locked_folder import TEMPORARY

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - it is looked at
_TEMPORARY = "/tmp"  # noqa: S108 - it is looked at
_MOST = 20_000  # entries of one folder
_MOST_LINKS = 10  # followed to resolve a path
_LARGEST = 4_194_304  # numbers of processes are below it: PID_MAX_LIMIT of include/linux/threads.h
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

BEING_REMOVED = ".verl-doctor-removes-"
"""Prefix of a file's name, followed by 16 hexadecimal digits, during verl-doctor's last check of it."""

DOOMED = ".verl-doctor-removed-"
"""Prefix that replaces it once the decision is made: then the file is being removed."""

# In a Ray folder (ray/_private/node.py). The last number of a session is the process that made it.
_OF_RAY: tuple[tuple[Kind, str], ...] = (
    ("session folder", r"session_\d{4}(?:-\d\d){2}_\d\d(?:-\d\d){2}_\d{6}_(?P<pid>\d+)"),
    ("address file", r"ray_current_cluster"),
)
# In a folder for temporary files: those of a trainer derived from verl; verl's sockets for sending weights to
# vLLM (verl/workers/rollout/vllm_rollout); vLLM's own (vllm/utils/network_utils.py: get_open_zmq_ipc_path);
# verl-doctor's.
_TEMPORARIES: tuple[tuple[Kind, str], ...] = (
    ("session folder", r"verl_ray_(?:[\w.-]+_)?(?P<pid>\d+)|verl_ray_[\w.-]+"),
    ("spill folder", r"verl_spill_(?:[\w.-]+_)?(?P<pid>\d+)|verl_spill_[\w.-]+"),
    ("socket", r"rl-colocate-zmq-[\w.-]+\.sock"),
    ("socket", r"verl_vllm_zmq_(?P<pid>\d+)(?:_[\w.-]+)?\.ipc"),
    ("socket", _UUID),
    ("temporary folder", rf"{TEMPORARY}(?P<pid>\d+)-[a-z0-9_]{{8}}"),
)
# What any release of Ray puts into a session (ray/_private/node.py, services.py; ray/dashboard), and what
# lies next to sessions.
_IN_SESSION = (
    r"(?:logs|sockets|metrics|runtime_resources|profile|ray_spilled_objects\w*|\w*ports?_\w+|[\w.-]+\."
    r"(?:json|lock|pid)(?:\.lock)?)(?:/.*)?"
)
_BESIDE_SESSIONS = (
    r"ray_current_cluster|session_latest|\w+\.lock|prom_metrics_service_discovery\.json|session_[\d_-]+"
    rf"(?:/{_IN_SESSION})?"
)
_SPILLED_OBJECTS = r"ray_spilled_objects\w*(?:/.*)?|[0-9a-f]{28,}(?:-multi-\d+)?"
# By the prefix of a folder's name. The name alone does not show that it holds nothing of the user's.
_EXPECTED = {
    "session_": re.compile(_IN_SESSION, re.DOTALL),
    "verl_ray_": re.compile(rf"ray|(?:ray/)?(?:{_BESIDE_SESSIONS})", re.DOTALL),
    "verl_spill_": re.compile(_SPILLED_OBJECTS, re.DOTALL),
}
# ray/_private/external_storage.py; the number is the node's.
_SPILLED: tuple[tuple[Kind, str], ...] = (
    ("spill folder", r"ray_spilled_objects(?:_(?P<node>[0-9a-f]{16,}))?"),
)
# Segments and semaphores of multiprocessing (vLLM's queues), verl's weights, segments of NCCL, torch and
# vLLM, the semaphores of joblib's loky, and those of CUDA's driver, whose names hold the user and the process
# in hexadecimal digits (seen with driver 580.159 on an H200).
_SEGMENTS: tuple[tuple[Kind, str], ...] = (
    ("shared memory", r"psm_[0-9a-f]{8,16}|sem\.mp-[\w-]{8}|verl_weights_[0-9a-f]{8,}|nccl-[A-Za-z0-9]{6}"),
    ("shared memory", r"sem\.loky-(?P<pid>\d+)-[\w-]+"),
    ("shared memory", r"cuda\.shm\.[0-9a-f]+\.(?P<hexadecimal>[0-9a-f]+)\.[0-9a-f]+"),
    ("shared memory", r"torch_(?P<pid>\d+)_[\w.-]+|vllm_(?:offload|ec)_[\w.-]+\.mmap|plasma[A-Za-z0-9]{6}"),
)


@dataclass(frozen=True)
class Place:
    """A file or folder with the name of a leftover. `folder` is a path without links.

    `pid` is the process in its name, `node` the Ray node; `name` is its original name, even after verl-doctor
    has begun to remove it.
    """

    kind: Kind
    folder: str
    entry: str
    name: str
    pid: int = 0
    node: str = ""

    @property
    def put_aside(self) -> bool:
        """Whether verl-doctor moved it for a last check and was stopped before it decided."""
        return self.entry.startswith(BEING_REMOVED)

    @property
    def path(self) -> str:
        """Return its path."""
        return f"{self.folder.rstrip('/')}/{self.entry}"

    @property
    def expected(self) -> re.Pattern[str] | None:
        """Return the pattern of all paths within it that Ray creates; None if anything may be in it."""
        return next((known for begin, known in _EXPECTED.items() if self.name.startswith(begin)), None)


def places(
    machine: Machine, ray: Iterable[str], temporary: Iterable[str], spill: Iterable[str]
) -> tuple[Place, ...]:
    """Return all candidates in the folders known to hold Ray's files, temporary files or spilled objects."""
    temporaries = _real(machine, [_TEMPORARY, *temporary])
    own = [_TEMPORARY + f"/ray-{os.geteuid()}", *ray, *(f"{folder}/ray" for folder in temporaries)]
    folders = [
        *((folder, _OF_RAY) for folder in _real(machine, [*own, *_ray_folders_below(machine, temporaries)])),
        *((folder, _TEMPORARIES) for folder in temporaries),
        *((folder, _SPILLED) for folder in _real(machine, spill)),
        *((folder, _SEGMENTS) for folder in _real(machine, [SHARED_MEMORY])),
    ]
    found = {
        place.path: place
        for folder, known in folders
        for place in _in(machine, folder, known)
        if not _is_own(place)
    }
    within = tuple(place.path + "/" for place in found.values())
    return tuple(place for path, place in sorted(found.items()) if not path.startswith(within))


def place_at(path: str) -> Place | None:
    """Identify a file by its name; None if no leftover has such a name."""
    folder, _, entry = path.rpartition("/")
    return next(_named(folder, entry, (*_OF_RAY, *_TEMPORARIES, *_SPILLED, *_SEGMENTS)), None)


def _is_own(place: Place) -> bool:
    """Return whether this process created the folder for its present work."""
    return place.kind == "temporary folder" and place.pid == os.getpid()


def _real(machine: Machine, paths: Iterable[str]) -> list[str]:
    own = (path for path in paths if path.startswith("/") and not _passes_foreign_link(path, machine))
    return list(dict.fromkeys(map(machine.real, own)))


def _passes_foreign_link(path: str, machine: Machine, most: int = _MOST_LINKS) -> bool:
    """Return whether the path passes through a link of another user.

    That user could thus choose what is searched and removed.
    """
    way = "/"
    for step in filter(None, path.split("/")):
        way = os.path.normpath(f"{way}/{step}")
        try:
            owner = os.lstat(machine.at(way)).st_uid
            target = os.readlink(machine.at(way))  # noqa: PTH115 - text, not a path to be followed
        except OSError:
            continue  # no link
        if owner not in (0, os.geteuid()) or not most:
            return True
        way = target if target.startswith("/") else os.path.normpath(f"{way}/../{target}")
        if _passes_foreign_link(way, machine, most - 1):
            return True
    return False


def _ray_folders_below(machine: Machine, folders: Iterable[str]) -> Iterator[str]:
    """Yield Ray's folders in this user's own folders, as with RAY_TMPDIR=/tmp/x."""
    for folder in folders:
        for name in _names(machine, folder):
            path = f"{folder}/{name}/ray"
            if not name.startswith((BEING_REMOVED, DOOMED)) and os.path.isdir(machine.at(path)):
                yield path


def _in(machine: Machine, folder: str, known: Iterable[tuple[Kind, str]]) -> Iterator[Place]:
    for entry in _names(machine, folder):
        yield from _named(folder, entry, known)


def _named(folder: str, entry: str, known: Iterable[tuple[Kind, str]]) -> Iterator[Place]:
    name = entry[len(BEING_REMOVED) + 17 :] if entry.startswith((BEING_REMOVED, DOOMED)) else entry
    for kind, pattern in known:
        if match := re.fullmatch(pattern, name, re.ASCII):
            groups = match.groupdict()
            number = (groups.get("pid") or str(int(groups.get("hexadecimal") or "0", 16))).lstrip("0")
            pid = int(number) if 0 < len(number) < 8 and int(number) < _LARGEST else 0  # else it is a date
            yield Place(kind, folder, entry, name, pid, groups.get("node") or "")
            return


def _names(machine: Machine, folder: str) -> list[str]:
    try:
        return os.listdir(machine.at(folder))[:_MOST]  # noqa: PTH208 - names alone
    except OSError:
        return []
