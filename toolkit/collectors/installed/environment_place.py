"""The identity of the target's environment.

Two nodes with the same place share its files, and so each other's repairs.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import file_system_of
from verl_doctor.toolkit.target import Target


@dataclass(frozen=True)
class EnvironmentPlace:
    """The environment's folder `prefix`, the kind of its file system, and whether it is `shared`.

    `shared` means that other machines may see it.

    `files` is equal on two machines if and only if the files are the same: for a shared file system its
    device as mounted and the folder's inode, otherwise the kernel's boot ID of the machine, and device and
    inode there.
    """

    prefix: str
    kind: str
    shared: bool
    files: str


@collector()
def environment_place(target: Target, machine: Machine) -> EnvironmentPlace | Unknown:
    """Query the kernel for the folder and its mount."""
    if sys.platform != "linux":
        return Absent("mounts are checked on Linux only")
    prefix = os.path.realpath(target.prefix)
    mount = file_system_of(machine, prefix)
    boot = (machine.read("/proc/sys/kernel/random/boot_id") or "").strip()
    try:
        folder = os.stat(prefix)  # noqa: PTH116 - as `os.path` above
    except OSError as error:
        return Unknown(f"{prefix} cannot be examined: {error.strerror}")
    if mount is None or not boot:
        return Unknown("the kernel does not report the file system of the environment")
    here = f"{boot} {folder.st_dev}"
    where = f"{mount.kind} {mount.device}" if mount.shared else here
    return EnvironmentPlace(prefix, mount.kind, mount.shared, f"{where} {folder.st_ino}")
