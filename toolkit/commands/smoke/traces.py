"""Detect what a smoke test's processes leave outside its folder: shared memory and sockets, while held.

vLLM, verl and multiprocessing keep named segments in /dev/shm, verl sockets in /tmp; a killed process leaves
them there. A name alone does not identify the owner: a job of the same user may start at the same time. So a
new file counts as the test's only if a process below the test's child has it open or mapped. That is written
down at once, for a later cleanup.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.leftovers.places import SHARED_MEMORY, place_at
from verl_doctor.toolkit.leftover import EndProcess
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.locked_folder import text_in
from verl_doctor.toolkit.system.unix_sockets import unix_sockets

_FOLDERS = (SHARED_MEMORY, "/tmp")  # noqa: S108 - it is looked at
_ROUNDING = 2.0  # seconds between the clock of this process and that of a file system

Identity = tuple[int, int]
"""Device and inode of a file."""


class Traces:
    """Records in a file what belongs to the test."""

    def __init__(self, note: Path, machine: Machine) -> None:
        self._note, self._machine = note, machine
        self._begun = time.time() - _ROUNDING
        self._known: set[tuple[str, Identity]] = set()
        self._kin: set[tuple[int, int]] = set()

    def look(self, kin: Collection[tuple[int, int]]) -> None:
        """Record what these processes hold now. They are identified by number and start."""
        lines: list[dict[str, object]] = [{"pid": pid, "ticks": ticks} for pid, ticks in {*kin} - self._kin]
        self._kin |= {*kin}
        new = [candidate for candidate in self._candidates() if candidate not in self._known]
        held = _held_by([pid for pid, _ in kin], self._machine) if new else frozenset()
        for path, identity in new:
            if path in held or identity in held:
                self._known.add((path, identity))
                lines.append({"path": path, "device": identity[0], "inode": identity[1]})
        if lines:
            with self._note.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)

    def _candidates(self) -> Iterator[tuple[str, Identity]]:
        """Yield the files that have such a name, are this user's, and are younger than the test."""
        for folder in _FOLDERS:
            try:
                entries = list(os.scandir(self._machine.at(folder)))
            except OSError:
                continue
            for entry in entries:
                path = f"{folder}/{entry.name}"
                if not _is_trace(path):
                    continue
                with contextlib.suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    if about.st_uid == os.geteuid() and about.st_ctime >= self._begun:
                        yield path, (about.st_dev, about.st_ino)


def noted_processes(note: Path) -> list[EndProcess]:
    """Return the recorded processes, whether or not they still run."""
    return [EndProcess(int(line["pid"]), int(line["ticks"])) for line in _lines(note) if "pid" in line]


def remove_noted(note: Path) -> None:
    """Remove the files, unless another file has the name meanwhile."""
    for line in _lines(note):
        with contextlib.suppress(OSError, KeyError):
            if not _is_trace(line["path"]):
                continue
            about = os.lstat(line["path"])
            if (about.st_dev, about.st_ino) == (line["device"], line["inode"]):
                os.unlink(line["path"])  # noqa: PTH108


def _is_trace(path: str) -> bool:
    """Return whether a test's processes use this kind of name for what they leave."""
    place = place_at(path)
    return place is not None and place.folder in _FOLDERS


def _lines(note: Path) -> list[dict[str, Any]]:
    found = []
    with contextlib.suppress(OSError):
        for line in text_in(note.parent, note.name).splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def _held_by(pids: Collection[int], machine: Machine) -> frozenset[str | Identity]:
    """Return the files that these processes have open or mapped, and the paths of their sockets."""
    sockets = {
        f"socket:[{unix_socket.inode}]": unix_socket.path
        for unix_socket in unix_sockets(machine)
        if unix_socket.path.startswith("/")
    }
    found: set[str | Identity] = set()
    for pid in pids:
        found.update(_mapped(machine.read(f"/proc/{pid}/maps") or ""))
        with contextlib.suppress(OSError):
            for entry in os.scandir(machine.at(f"/proc/{pid}/fd")):
                with contextlib.suppress(OSError):
                    target = os.readlink(entry.path)  # noqa: PTH115 - "socket:[1]" is no path
                    if target.startswith(_FOLDERS):
                        about = entry.stat()
                        found.add((about.st_dev, about.st_ino))
                    elif target in sockets:
                        found.add(sockets[target])
    return frozenset(found)


def _mapped(maps: str) -> Iterator[Identity]:
    """Yield the mapped files.

    A semaphore is mapped under a name that it no longer has (sem_open(3)): only its inode identifies it.
    """
    for line in maps.splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and words[5].startswith(SHARED_MEMORY):
            major, minor = words[3].split(":")
            yield os.makedev(int(major, 16), int(minor, 16)), int(words[4])
