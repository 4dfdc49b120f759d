"""The processes that hold memory of a GPU: NVML's numbers joined with the process table."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.processes.processes import role_of
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import open_files

_MIB = 1024 * 1024
_LONGEST = 60
_A_GPU = re.compile(r"/dev/(?:nvidia\d+|dxg)")


@dataclass(frozen=True)
class Holder:
    """A process that holds memory of a GPU.

    `memory` is in MiB, None if NVML does not report it. `role` is its part in a job
    (`processes.processes.Role`), empty if it has no known part. `title` is the first word of its command
    line, empty if the process is not visible from here: another container's. `mine`: it runs as this user.
    `started` is in seconds since the epoch.
    """

    pid: int
    memory: int | None
    role: str = ""
    title: str = ""
    mine: bool = False
    parent: int = 0
    started: float = 0.0

    @property
    def seen(self) -> bool:
        """Whether the process is in this container's process table."""
        return bool(self.title)


def holders_of(pairs: Sequence[Sequence[int | None]]) -> tuple[Holder, ...]:
    """Return the holders of one GPU from NVML's pairs of process number and bytes."""
    return tuple(
        _looked_up(pid, None if size is None else size // _MIB) for pid, size in pairs if pid is not None
    )


def openers() -> tuple[Holder, ...]:
    """Return the visible processes that have some GPU's device file open, if that may be inspected.

    For containers in which NVML names no processes. Which GPU they use, and how much of it, is unknown.
    """
    import psutil  # noqa: PLC0415 - ten milliseconds

    found = (_looked_up(pid, None) for pid in psutil.pids() if _opens_a_gpu(pid, unseen=False))
    return tuple(holder for holder in found if holder.seen)


def _looked_up(pid: int, memory: int | None) -> Holder:
    import psutil  # noqa: PLC0415

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            words = process.cmdline() or [process.name()]
            if not _opens_a_gpu(pid, unseen=True):
                return Holder(pid, memory)
            role = role_of(" ".join(words)) or ""
            return Holder(
                pid,
                memory,
                role,
                words[0].split(" ")[0][-_LONGEST:],
                mine=hasattr(os, "geteuid") and process.uids().effective == os.geteuid(),
                parent=process.ppid(),
                started=process.create_time(),
            )
    except psutil.Error:
        return Holder(pid, memory)


def _opens_a_gpu(pid: int, *, unseen: bool) -> bool:
    """Return whether the process has a GPU's device file open; `unseen` if that may not be inspected.

    In a container NVML may report the host's process numbers, which here belong to other processes.
    """
    try:
        return any(map(_A_GPU.fullmatch, open_files(pid, Machine())))
    except OSError:
        return unseen
