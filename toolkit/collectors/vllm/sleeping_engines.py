"""The vLLM engines that currently sleep, and what holds their GPU's memory.

The engines' own logs are compared with NVML's numbers.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.vllm.engine_log import EngineLog, read_engine_log
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import row_of
from verl_doctor.toolkit.system.process_ties import ties_of
from verl_doctor.toolkit.text import listed

_PART = 4 * 1024 * 1024  # bytes read at a log's beginning, and at its end
_SHOWN = 4
_ANCESTORS = 3  # an engine's worker, the engine, the server or actor around it
_LOGS = (".log", ".out", ".err", ".txt")


@dataclass(frozen=True)
class SleepingEngine:
    """One engine process that sleeps, according to its log `path`, and what it and others now hold of a GPU.

    `held` is in MiB and covers the whole process. `alone`: the engine has the process to itself; before verl
    0.7 it may share a worker of the trainer. `others` are the other processes on the GPU, `nobody` is the
    memory that no visible process holds, in MiB.
    """

    pid: int
    title: str
    gpu: int
    held: int
    log: EngineLog
    path: str
    alone: bool = True
    others: tuple[Holder, ...] = ()
    nobody: int = 0


@dataclass(frozen=True)
class SleepingEngines:
    """The sleeping engines, of those whose log was found."""

    engines: tuple[SleepingEngine, ...] = ()


@collector(timeout=15)
def sleeping_engines(gpus: Gpus, machine: Machine) -> SleepingEngines | Unknown:
    """Find the log of each engine process of this user that holds GPU memory, and read whether it sleeps."""
    engines = [
        (device, holder)
        for device in gpus.devices
        for holder in device.holders
        if holder.mine and holder.role in ("engine", "ray worker") and holder.memory
    ]
    if not engines:
        return Absent("no engine of this user holds memory of a GPU")
    found, unread, read = [], [], 0
    for device, holder in engines:
        found_log = _log_of(holder.pid, machine)
        if found_log is None:
            if holder.role == "engine":
                unread.append(f"{holder.title} (process {holder.pid})")
            continue
        path, log = found_log
        read += 1
        if log.asleep:
            others = tuple(other for other in device.holders if other.pid != holder.pid)
            found.append(
                SleepingEngine(
                    holder.pid,
                    holder.title,
                    device.index,
                    holder.memory or 0,
                    log,
                    path,
                    holder.role == "engine",
                    others,
                    device.unattributed,
                )
            )
    if unread and not read:
        return Unknown(f"it is unknown whether they sleep: no log was found of {listed(unread, _SHOWN)}")
    return SleepingEngines(tuple(found))


def _log_of(pid: int, machine: Machine) -> tuple[str, EngineLog] | None:
    """Return the log in which this engine reports its memory, and its values; None if there is none."""
    line = list(_line_of(pid, machine))
    for path in dict.fromkeys(_logs_of(line, machine)):
        log = read_engine_log(_lines(path), line)
        if log != EngineLog():
            return str(path), log
    return None


def _line_of(pid: int, machine: Machine) -> Iterator[int]:
    """Yield a process and its ancestors, as far as they may be the same engine or the actor around it."""
    row = row_of(pid, machine)
    for _ in range(_ANCESTORS):
        if row is None or row.pid <= 1 or not row.mine:
            return
        yield row.pid
        row = row_of(row.parent, machine)


def _logs_of(line: Collection[int], machine: Machine) -> Iterator[Path]:
    """Yield files to which these processes write.

    First comes their output, next what the reader of their output writes, then files named like a log.
    """
    for pid in line:
        yield from _written_by(pid, machine, {"1", "2"})
    readers = {
        tie.other
        for ties in ties_of(line, machine).values()
        for tie in ties
        if tie.standard and tie.by == "a pipe" and tie.other not in line
    }
    for pid in readers:
        yield from _written_by(pid, machine)
    for pid in line:
        yield from (path for path in _written_by(pid, machine) if path.suffix in _LOGS)


def _written_by(pid: int, machine: Machine, names: Collection[str] = ()) -> Iterator[Path]:
    """Yield the regular files that a process has open for writing, or those at the given descriptors."""
    folder = machine.at(f"/proc/{pid}/fd")
    with suppress(OSError):
        for link in sorted(folder.iterdir()):
            with suppress(OSError):  # closed meanwhile
                if names and link.name not in names:
                    continue
                target = os.readlink(link)  # noqa: PTH115 - "pipe:[1]" is no path
                writes = link.lstat().st_mode & stat.S_IWUSR
                if writes and target.startswith("/") and stat.S_ISREG(machine.at(target).stat().st_mode):
                    yield machine.at(target)


def _lines(path: Path) -> list[str]:
    """Return the beginning of a log, where an engine starts, and its end, where it last fell asleep."""
    try:
        with path.open("rb") as file:
            begin = file.read(_PART)
            file.seek(0, os.SEEK_END)
            file.seek(max(len(begin), file.tell() - _PART))
            return (begin + file.read()).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
