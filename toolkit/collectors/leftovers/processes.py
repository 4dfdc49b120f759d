"""Processes of ended jobs: engines and workers without a job, with the evidence, and doubtful ones."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.leftovers.origin import code_of, why_unrecognised
from verl_doctor.toolkit.collectors.leftovers.orphans import (
    Around,
    is_called_helper,
    is_nameless,
    is_of_ray,
    orphans,
)
from verl_doctor.toolkit.collectors.processes.processes import role_of
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.leftover import EndProcess, Kept, Leftover, Leftovers, Store
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_activity import watch
from verl_doctor.toolkit.system.process_life import signs_of_life
from verl_doctor.toolkit.system.process_table import (
    Row,
    boot_time,
    commands,
    open_files,
    row_of,
    seconds_of,
    sees_all,
    settled_command,
    threads,
)
from verl_doctor.toolkit.system.process_ties import LISTENS, connections, lost_ends, socket_inodes, ties_of

_MIB = 1024 * 1024
_LONGEST = 60
_TRACER = re.compile(r"^TracerPid:\s+(\d+)", re.MULTILINE)
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)
_NAMESPACES = ("pid", "net", "mnt", "ipc", "user", "uts", "cgroup", "time")
_SESSION = re.compile(r"(/[^\s=]*?/session_[\w-]+)(?:/|$)")
_AGENT = re.compile(r"\bray/\w+/(?:\w+/)*\w+\.py")
_MODULE = re.compile(r"multiprocessing\.\w+|compile_worker")
_SOCKET_TIMEOUT = 1.0  # seconds for a socket on this machine


@dataclass(frozen=True)
class LeftProcesses(Leftovers):
    """Leftover processes of ended jobs, in the order to end them, and kept ones that resemble them."""


@collector(timeout=30)
def left_processes(gpus: Gpus | Unknown, machine: Machine) -> LeftProcesses | Unknown:
    """Judge the helpers in the table of processes. `gpus` reports how much GPU memory each one holds."""
    booted = boot_time(machine)
    if booted is None:
        return Unknown(
            "/proc/stat cannot be read: there is no /proc, or it shows processes alone (subset=pid)"
        )
    if machine.root != Path("/"):
        return Absent("the processes of a recorded machine do not exist here")
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    if not any(map(is_called_helper, commands(machine).values())):
        return LeftProcesses()
    # A raylet or a helper's child in the middle of execve would count as missing.
    called = commands(machine, settled_command)
    table = [row for pid, command in called.items() if (row := row_of(pid, machine, command))]
    found = orphans(
        table,
        Around(
            ties=lambda pids: ties_of(pids, machine),
            age=lambda row: now - seconds_of(row.ticks),
            session=lambda row: is_session_alive(row, table, machine),
            debugger=lambda row: _debugger(row.pid, machine),
            elsewhere=lambda row: _elsewhere(row.pid, machine),
            foreign=lambda row: why_unrecognised(row.pid, row.command, machine),
            abandoned=lambda row: lost_ends(row.pid, machine) > 0,
            life=lambda row: signs_of_life(row.pid, machine),
            activity=lambda pids: watch(pids, machine),
            rendezvous=lambda pids: _rendezvous(pids, machine),
        ),
    )
    held = _held(gpus)
    return LeftProcesses(
        tuple(
            Leftover(
                "process",
                name(row),
                tuple(_proof(row, fate, booted)),
                EndProcess(row.pid, row.ticks),
                *_size(row.pid, held, machine),
                now - seconds_of(row.ticks),
            )
            for row, fate in found.left
        ),
        tuple(Kept("process", name(row), why, *_size(row.pid, held, machine)) for row, why in found.kept),
    )


def name(row: Row) -> str:
    """Return the display name of a process: its title and its number."""
    pattern = _MODULE if is_nameless(row) else _AGENT if role_of(row.command) == "ray agent" else None
    module = pattern.search(row.command) if pattern else None
    title = module[0] if module else row.title.rpartition("/")[2]
    return f"{title[-_LONGEST:]} (process {row.pid})"


def _proof(row: Row, fate: str, booted: int) -> Iterator[str]:
    yield fate
    yield "no running process is at the other end of its pipes and sockets, or shares memory with it"
    whose = "Ray" if is_of_ray(row) else "vLLM or SGLang"
    yield f"it runs code of {whose}, or belongs to a process that does"
    yield "it has no client, holds no lock, and did nothing while it was watched"
    if is_of_ray(row):
        yield "its Ray session has no raylet and no GCS server any more"
    started = time.localtime(booted + seconds_of(row.ticks))
    yield f"running since {time.strftime('%Y-%m-%d %H:%M', started)}"


def is_session_alive(row: Row, table: Iterable[Row], machine: Machine) -> bool | None:
    """Return whether any Ray session in whose folders this process has files is alive; None if unknown.

    A session is alive if its raylet answers, or if a raylet or GCS server names it. The process that started
    this one is in the same table, even if the session's folder was removed; if the table is incomplete, only
    a refused connection proves that nothing listens.
    """
    sessions = set(_SESSION.findall(row.command)) | set(_open_sessions(row.pid, machine))
    if not sessions:
        return None
    named = {Path(session).name for session in sessions}
    servers = [row.command for row in table if role_of(row.command) in ("raylet", "gcs_server")]
    if any(name in command for name in named for command in servers):
        return True
    sockets = [_raylets(session, machine) for session in sessions]
    if any(path is None for path in sockets):
        return None
    raylets = [path for some in sockets for path in some or ()]
    if any(map(_answers, raylets)):
        return True
    return False if raylets or sees_all(machine) else None


def _raylets(session: str, machine: Machine) -> list[Path] | None:
    """Return the sockets of a session's raylet; None if its folder may not be read."""
    folder = machine.at(f"{session}/sockets")
    try:
        return [folder / name for name in os.listdir(folder) if name.startswith("raylet")]  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None


def _open_sessions(pid: int, machine: Machine) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for file in open_files(pid, machine):
            if match := _SESSION.match(file):
                yield match[1]


def _answers(path: Path) -> bool:
    """Return whether a process listens there. Only a refused connection proves that none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SOCKET_TIMEOUT)
        try:
            connection.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _elsewhere(pid: int, machine: Machine) -> str:
    """Return why a process counts as another container's, "" if it shares this program's container."""
    try:
        known = [kind for kind in _NAMESPACES if os.path.lexists(machine.at(f"/proc/self/ns/{kind}"))]
        own, its = (
            [os.readlink(machine.at(f"/proc/{owner}/ns/{kind}")) for kind in known]  # noqa: PTH115
            for owner in ("self", pid)
        )
        roots = [machine.at(f"/proc/{owner}/root").stat() for owner in ("self", pid)]
    except FileNotFoundError:
        return "it has ended"
    except OSError as error:
        return f"its container may not be examined ({error.strerror})"
    same = own == its and os.path.samestat(*roots)
    return "" if same else "it runs in another container; run verl-doctor there"


def _debugger(pid: int, machine: Machine) -> int:
    """Return the process that traces any thread of this one, 0 if none does."""
    tracers = (_number(_TRACER, f"{pid}/task/{task}", machine) for task in threads(pid, machine))
    return next(filter(None, tracers), 0)


def _rendezvous(pids: Collection[int], machine: Machine) -> set[int]:
    """Return those that torch.distributed has connected: one listens, and all its clients are among them.

    Each of them runs torch code. Their other TCP listeners, by which their backends find each other, belong
    to it.
    """
    torch = {pid for pid in pids if _runs_torch(pid, machine)}
    ports = {
        sign.port: pid
        for pid in torch
        for sign in signs_of_life(pid, machine)
        if sign.family == "TCP listener"
    }
    holders: dict[int, set[int]] = {}
    for pid in torch:
        for inode in socket_inodes(pid, machine):
            holders.setdefault(inode, set()).add(pid)
    found: set[int] = set()
    known = list(connections(machine))
    strange = {
        connection.local.port
        for connection in known
        if connection.local.port in ports and connection.state != LISTENS and connection.inode not in holders
    }
    for connection in known:
        peer = next(
            (
                other
                for other in known
                if (other.local, other.remote) == (connection.remote, connection.local)
            ),
            None,
        )
        if connection.established and peer is not None and {connection.inode, peer.inode} <= holders.keys():
            found |= (
                holders[connection.inode] | holders[peer.inode] if connection.local.port in ports else set()
            )
    return found if not strange else set()


def _runs_torch(pid: int, machine: Machine) -> bool:
    try:
        return "torch" in code_of(pid, machine)
    except OSError:
        return False


def _held(gpus: Gpus | Unknown) -> Mapping[int, int]:
    """Return bytes of GPU memory by process."""
    held: dict[int, int] = {}
    for device in gpus.devices if isinstance(gpus, Gpus) else ():
        for holder in device.holders:
            held[holder.pid] = held.get(holder.pid, 0) + (holder.memory or 0) * _MIB
    return held


def _size(pid: int, held: Mapping[int, int], machine: Machine) -> tuple[int, Store]:
    if held.get(pid):
        return held[pid], "GPU memory"
    return resident(pid, machine), "memory"


def resident(pid: int, machine: Machine) -> int:
    """Return the resident memory of a process in bytes, 0 if it has ended."""
    return _number(_RESIDENT, pid, machine) * 1024


def _number(pattern: re.Pattern[str], pid: int | str, machine: Machine) -> int:
    match = pattern.search(machine.read(f"/proc/{pid}/status") or "")
    return int(match[1]) if match else 0
