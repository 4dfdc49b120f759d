"""POSIX shared memory: the size of its file system."""

from __future__ import annotations

import os
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import why_refused

_FOLDER = "/dev/shm"  # noqa: S108 - what is tried there has no name and is gone at once


@dataclass(frozen=True)
class SharedMemory:
    """The file system on /dev/shm, in bytes: `free` is as far as this user may fill it.

    `refused` is why this user cannot create a file there, "" if possible.
    """

    size: int
    free: int
    refused: str = ""


@collector()
def shared_memory(machine: Machine) -> SharedMemory | Unknown:
    """Query the space, and try to use it."""
    folder = machine.at(_FOLDER)
    if not os.path.isdir(folder):
        return Absent("this system has no /dev/shm")
    try:
        space = os.statvfs(folder)
    except OSError as error:
        return Unknown(f"{_FOLDER} cannot be read: {error.strerror}")
    return SharedMemory(space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize, why_refused(folder))
