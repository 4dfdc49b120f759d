"""A small fake machine with leftovers of dead jobs: its folders belong to the test, its processes are given."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from verl_doctor.toolkit.collectors.host.spilling import Spilling
from verl_doctor.toolkit.collectors.leftovers import files, process_signs
from verl_doctor.toolkit.collectors.leftovers.file_leftovers import FileLeftovers, judged_all
from verl_doctor.toolkit.collectors.leftovers.files import LeftFiles, left_files
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import Kept, Leftover
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.unix_sockets import unix_diagnoses

NOBODY = 4_000_000  # a number that no process has: above the largest that the kernel gives (pid_max)
_UNKNOWN = Unknown("not asked in this test")


def machine_in(folder: Path) -> Machine:
    """A machine with /tmp and /dev/shm in a test's folder."""
    for name in ("tmp", "dev/shm"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "proc").mkdir(exist_ok=True)
    machine = Machine(root=folder, environ={}, cwd=folder)
    for name in ("stat", "self", "net", os.getpid()):
        show(machine, name)
    return machine


def show(machine: Machine, entry: str | int) -> None:
    """Make one process, or another entry of /proc, visible on the machine."""
    machine.at(f"/proc/{entry}").symlink_to(f"/proc/{entry}")


@contextlib.contextmanager
def two_minutes_later() -> Iterator[None]:
    """Return the context in which new files are old, and all processes of the machine are visible."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_signs, "sees_all", lambda _: True)
        patch.setattr(process_signs, "unix_diagnoses", _of_this_test)
        patch.setattr(files.time, "time", lambda: time.time_ns() / 1e9 + 120)
        yield


def _of_this_test() -> list[Any] | None:
    """What the kernel reports about sockets, without those of the machine's other processes, to which messages come at any time."""
    before = _held_by_others()
    found = unix_diagnoses()
    if found is None:
        return None
    others = before | _held_by_others()
    return [socket for socket in found if socket.inode not in others]


def _held_by_others() -> set[int]:
    held: set[int] = set()
    own = {str(os.getpid()), *(str(child.pid) for child in psutil.Process().children(recursive=True))}
    for process in set(filter(str.isdecimal, os.listdir("/proc"))) - own:  # noqa: PTH208 - names are enough
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{process}/fd"):  # noqa: PTH208 - names are enough
                with contextlib.suppress(OSError):
                    link = os.readlink(f"/proc/{process}/fd/{name}")  # noqa: PTH115 - "socket:[1]" is no path
                    if link.startswith("socket:["):
                        held.add(int(link[len("socket:[") : -1]))
    return held


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine two minutes later than it is."""
    with two_minutes_later():
        yield machine_in(tmp_path)


def look(machine: Machine) -> LeftFiles:
    """Return the candidates."""
    spilled = machine.environ.get("RAY_object_spilling_directory")
    found = left_files.collect(machine, _UNKNOWN, Spilling((spilled,)) if spilled else _UNKNOWN)
    return found if isinstance(found, LeftFiles) else LeftFiles()


def leftovers(machine: Machine) -> FileLeftovers:
    """Return the leftovers among them."""
    return judged_all(look(machine))


def verdict(machine: Machine, name: str) -> Leftover | Kept:
    """Return the judgement of one file, by the end of its path."""
    found = leftovers(machine)
    (one,) = [leftover for leftover in (*found.found, *found.kept) if leftover.name.endswith(name)]
    return one


def session(machine: Machine, pid: int = NOBODY, *, ray: str = "/tmp/ray") -> Path:
    """Return the folder of a session in Ray's form, with unbound sockets."""
    folder = machine.at(ray) / f"session_2026-11-21_18-00-00_123456_{pid}"
    (folder / "logs").mkdir(parents=True)
    folder.parent.chmod(0o777)
    (folder / "logs" / "raylet.out").write_text("started\n" * 1000)
    (folder / "sockets").mkdir()
    (folder / "node_ip_address.json").write_text("{}")
    dead_socket(folder / "sockets" / "raylet")
    return folder


def dead_socket(path: Path) -> Path:
    """A socket whose owner has ended."""
    bound(path).close()
    return path


def bound(path: Path) -> socket.socket:
    """Bind a socket and listen on it. Long paths are reached through their folder."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listening.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    listening.listen(1)
    return listening


@contextlib.contextmanager
def running(
    machine: Machine, script: str, *arguments: str, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process that has run a script and waits, and that the machine sees; it is killed in the end."""
    waits = f"{script}\nimport sys, time\nprint('ready', flush=True)\ntime.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", waits, *arguments], stdout=subprocess.PIPE, text=True, **options
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        show(machine, process.pid)
        yield process
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()
