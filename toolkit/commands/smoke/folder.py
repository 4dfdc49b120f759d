"""The private folder of a smoke test, and its cleanup.

A keeper, a process in its own session, detects when the doctor has ended, also by SIGKILL, and then cleans up
in its place. If the keeper is killed too, or the machine is switched off, the leftovers stay until this
user's next test on this machine finds the folder without an owner.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from verl_doctor.toolkit.commands.smoke.traces import noted_processes, remove_noted
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import EndProcess
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.locked_folder import abandoned, owned
from verl_doctor.toolkit.system.end_processes import end_processes
from verl_doctor.toolkit.system.process_table import numbers, own_number, row_of

MARK = "VERL_DOCTOR_SMOKE"
"""In the environment of each process of a test: the path of its folder."""

NOTE = "traces"
_PREFIX = "vds-"
_PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - short paths: the sockets of Ray lie below
_ENOUGH = 512 * 1024 * 1024  # bytes for Ray's session and logs
_KILL_TIMEOUT = 20.0  # seconds for killed processes: those with much GPU memory need some
_DONE = b"done"
_KEEPER = """
import sys
sys.path[:] = {path!r}
from verl_doctor.toolkit.commands.smoke.folder import keep
keep({folder!r})
"""


@contextlib.contextmanager
def private_folder(machine: Machine) -> Iterator[Path]:
    """Create a folder with a short path.

    On exit its processes are ended, and it is removed with everything noted in it.

    Raises OSError if there is no place for it.
    """
    clear_dead(machine)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_place()))
    with owned(folder), _kept(folder) as keeper:
        try:
            yield folder
        finally:
            clear(folder, machine)
            keeper.write(_DONE)


def clear(folder: Path, machine: Machine) -> None:
    """End the processes of a test, and remove what it left."""
    deadline = time.monotonic() + _KILL_TIMEOUT
    while (found := _processes_of(folder, machine)) and time.monotonic() < deadline:
        end_processes(found, machine, patience=0.0)
    remove_noted(folder / NOTE)
    for _ in range(3):  # a dying process may still write
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.2)


def clear_dead(machine: Machine) -> None:
    """Clean up after this user's tests whose doctor and keeper were both killed."""
    for place in {*_PLACES, tempfile.gettempdir()}:
        for folder in abandoned(Path(place), _PREFIX):
            clear(folder, machine)


def keep(folder: str) -> None:
    """Run the keeper: wait until the doctor reports that all is done, or ends silently."""
    if sys.stdin.buffer.read(len(_DONE)) != _DONE:
        clear(Path(folder), Machine())


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[IO[bytes]]:
    """Run a keeper for this folder, and yield the pipe to it."""
    program = _KEEPER.format(path=sys.path, folder=str(folder))
    keeper = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    if keeper.stdin is None:
        raise ValueError("the keeper needs its input as a pipe")
    try:
        yield keeper.stdin
    finally:
        with contextlib.suppress(BrokenPipeError):
            keeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(_KILL_TIMEOUT)


def _place() -> str:
    """Return the first folder with a short path and enough room, else the user's temporary folder."""
    for place in _PLACES:
        with contextlib.suppress(OSError):
            about = os.statvfs(place)
            if os.access(place, os.W_OK | os.X_OK) and about.f_bavail * about.f_frsize >= _ENOUGH:
                return place
    return tempfile.gettempdir()


def _processes_of(folder: Path, machine: Machine) -> list[EndProcess]:
    """Return the running processes of a test: noted, marked, or identified by their command line.

    A command line that names the folder counts only for a process without an environment to check.
    A process whose environment lacks the mark only looks at the logs.
    """
    listed = numbers(machine)
    noted = {*noted_processes(folder / NOTE)}
    found = []
    for pid in () if isinstance(listed, Unknown) else listed:
        row = row_of(pid, machine)
        if row is None or not row.mine or row.state in ("Z", "X") or pid == own_number():
            continue
        end_process = EndProcess(pid, row.ticks)
        environ = (machine.read(f"/proc/{pid}/environ") or "").strip("\0 ")
        named = f"{folder}/" in row.command and not environ
        if end_process in noted or named or f"{MARK}={folder}" in environ.split("\0"):
            found.append(end_process)
    return found


def long_as(folder: Path, environ: Mapping[str, str], *names: str) -> Path:
    """Return a folder below this one, padded to the length of the variable's path if that is longer.

    Sockets below too long a path cannot be created (AF_UNIX has room for 107 bytes), so what fails in the job
    fails here too.
    """
    wanted = next((environ[name] for name in names if environ.get(name)), "")
    lacking = min(len(os.path.abspath(wanted)), 200) - len(str(folder)) - 1
    longer = folder / ("x" * lacking) if wanted and lacking > 0 else folder
    longer.mkdir(mode=0o700, exist_ok=True)
    return longer
